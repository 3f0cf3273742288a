"use strict";
// A map is a picture whose points can be pointed at, and walked with the arrow keys.
(() => {
  const card = document.getElementById("card");
  const picture = card.querySelector("img");
  const words = card.querySelector("div");
  let data = { images: [], maps: {} };

  const describe = (map, index) => {
    const image = data.images[map.images[index]];
    const top = map.classes[map.answer[index]];
    const sure = Math.round(100 * map.probability[index]);
    const lines = [
      `label: ${map.classes[image.label] ?? "no known class"}`,
      map.answer[index] === image.label ? `answer: right, ${sure}%` : `answer: ${top}, ${sure}%`,
      `domain: ${image.domain}`,
      `uncertainty ${map.entropy[index].toFixed(2)} nats`,
      `of it epistemic ${map.epistemic[index].toFixed(2)}`,
    ];
    return { image, lines };
  };

  const hide = () => {
    card.hidden = true;
    for (const point of document.querySelectorAll(".map use.on")) point.classList.remove("on");
  };

  const show = (point, map, index) => {
    hide();
    point.classList.add("on");
    const { image, lines } = describe(map, index);
    picture.src = image.src;
    picture.classList.toggle("small", image.small);
    picture.alt = `picture: ${lines[0]}`;
    words.replaceChildren(...lines.map((line) => {
      const row = document.createElement("div");
      row.textContent = line;
      return row;
    }));
    point.setAttribute("aria-label", lines.join(", "));
    card.hidden = false;
    place(point);
  };

  const place = (point) => {
    const box = point.getBoundingClientRect(), size = card.getBoundingClientRect();
    const left = Math.min(box.right + 10, innerWidth - size.width - 8);
    const below = box.bottom + 10 + size.height < innerHeight;
    card.style.setProperty("left", `${Math.max(8, left)}px`);
    card.style.setProperty("top", `${Math.max(8, below ? box.bottom + 10 : box.top - size.height - 10)}px`);
  };

  const prepare = (svg) => {
    const map = data.maps[svg.dataset.map];
    const points = [...svg.querySelectorAll("use")];
    if (!map || !points.length) return;
    const at = points.map((point) => [+point.getAttribute("x"), +point.getAttribute("y")]);
    let current = 0;
    for (const point of points) {
      point.setAttribute("tabindex", "-1");
      point.setAttribute("role", "img");
    }
    points[0].setAttribute("tabindex", "0");
    points[0].setAttribute("aria-label", describe(map, 0).lines.join(", "));

    const best = (score) => {
      let found = -1, least = Infinity;
      at.forEach(([x, y], index) => {
        const value = score(x, y, index);
        if (value < least) [found, least] = [index, value];
      });
      return found;
    };
    svg.addEventListener("pointermove", (event) => {
      const box = svg.getBoundingClientRect(), size = svg.viewBox.baseVal;
      const x = size.x + (event.clientX - box.left) * size.width / box.width;
      const y = size.y + (event.clientY - box.top) * size.height / box.height;
      const reach = 14 * size.width / box.width;
      const index = best((px, py) => Math.hypot(px - x, py - y));
      if (Math.hypot(at[index][0] - x, at[index][1] - y) > reach) hide();
      else if (!points[index].classList.contains("on") || card.hidden) show(points[index], map, index);
    });
    svg.addEventListener("pointerleave", () => {
      const index = points.indexOf(document.activeElement);
      if (index < 0) hide();
      else show(points[index], map, index);
    });
    svg.addEventListener("focusin", (event) => {
      const index = points.indexOf(event.target);
      if (index >= 0) show(points[index], map, index);
    });
    svg.addEventListener("focusout", hide);
    svg.addEventListener("keydown", (event) => {
      const step = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
      if (event.key === "Escape") hide();
      if (!step) return;
      event.preventDefault();
      current = Math.max(0, points.indexOf(document.activeElement));
      const [x0, y0] = at[current];
      // The nearest one ahead; what lies aside counts double.
      const next = best((x, y, index) => {
        const ahead = (x - x0) * step[0] + (y - y0) * step[1];
        const aside = Math.abs((x - x0) * step[1]) + Math.abs((y - y0) * step[0]);
        return index === current || ahead <= 0 ? Infinity : ahead + 2 * aside;
      });
      if (next < 0) return;
      points[current].setAttribute("tabindex", "-1");
      points[next].setAttribute("tabindex", "0");
      points[next].focus();
    });
  };

  const begin = () => {
    const stored = document.getElementById("data");
    data = stored ? JSON.parse(stored.textContent) : data;
    for (const svg of document.querySelectorAll(".map svg[data-map]")) prepare(svg);
  };
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });
  document.addEventListener("scroll", () => {
    const point = document.querySelector(".map use.on");
    if (point && !card.hidden) place(point);
  }, { passive: true });
  document.addEventListener("page-renewed", begin);
  begin();
})();
