"use client";
import { useEffect } from "react";

export default function Page() {
  useEffect(() => {
    import("../page.js");
  }, []);
  return null;
}
