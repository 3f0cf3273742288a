"use strict";
// Asks for the page again and again, and shows it anew where it has changed.
(() => {
  let tag = document.getElementById("live").dataset.tag;
  const opened = () => [...document.querySelectorAll("details")].map((each) => each.open);
  const renew = async () => {
    try {
      const answer = await fetch("/", { headers: { "If-None-Match": tag }, cache: "no-store" });
      // Who walks on a map is not disturbed.
      if (answer.status === 200 && !document.activeElement?.closest(".map")) {
        tag = answer.headers.get("ETag") ?? "";
        const page = new DOMParser().parseFromString(await answer.text(), "text/html");
        const open = opened();
        document.title = page.title;
        document.querySelector("header").replaceWith(page.querySelector("header"));
        document.querySelector("main").replaceWith(page.querySelector("main"));
        document.querySelectorAll("details").forEach((each, index) => { each.open = open[index] ?? false; });
        document.dispatchEvent(new Event("page-renewed"));
      }
      document.getElementById("live").textContent = "live";
    } catch {
      document.getElementById("live").textContent = "bayesdg watch has ended; this is the last state";
    }
    setTimeout(renew, 3000);
  };
  renew();
})();
