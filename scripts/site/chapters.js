// Chapters of the navigation are open until the reader closes them.
for (const chapter of ["Start", "Programs", "Training", "Many devices"]) {
  const key = `tsd-accordion-${chapter}`;
  if (localStorage.getItem(key) === null) localStorage.setItem(key, "true");
}
