// Chapters of the navigation are open until the reader closes them.
for (const chapter of ["Start", "Programs", "Training", "Many devices"]) {
  const key = `tsd-accordion-${chapter}`;
  if (localStorage.getItem(key) === null) localStorage.setItem(key, "true");
}

// Wide pictures scroll on narrow screens, and must be reachable by keyboard.
for (const picture of document.querySelectorAll(".tsd-typography p > img:only-child")) {
  const mark = () => {
    if (picture.naturalWidth > 450) picture.parentElement.classList.add("scrolls");
    makeReachable();
  };
  if (picture.complete) mark();
  else picture.addEventListener("load", mark);
}
function makeReachable() {
  for (const element of document.querySelectorAll(".tsd-typography :is(table, pre, p.scrolls)")) {
    if (element.scrollWidth > element.clientWidth) element.tabIndex = 0;
  }
}
makeReachable();
addEventListener("resize", makeReachable);
