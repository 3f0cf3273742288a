"use strict";
// Asks for the page again and again, and shows it anew where it has changed.
(() => {
  let tag = "";
  const renew = async () => {
    try {
      const answer = await fetch("/", { headers: tag ? { "If-None-Match": tag } : {}, cache: "no-store" });
      if (answer.status === 200) {
        const first = tag === "";
        tag = answer.headers.get("ETag") ?? "";
        const page = new DOMParser().parseFromString(await answer.text(), "text/html");
        if (!first && !document.activeElement?.closest(".map")) {
          document.title = page.title;
          document.querySelector("header").replaceWith(page.querySelector("header"));
          document.querySelector("main").replaceWith(page.querySelector("main"));
          document.dispatchEvent(new Event("page-renewed"));
        } else if (!first) tag = "later";
      }
      document.getElementById("live").textContent = "live";
    } catch {
      document.getElementById("live").textContent = "bayesdg watch has ended; this is the last state";
    }
    setTimeout(renew, 3000);
  };
  renew();
})();
