"use strict";
(() => {
  const { columns, points, width, height } = JSON.parse(document.getElementById("points").textContent);
  const area = document.getElementById("map-area");
  const tip = area.querySelector(".tip");
  const finder = area.querySelector(".finder");
  const buttons = [...document.querySelectorAll(".legend button")];
  const dots = [...area.querySelectorAll("svg path")];
  const prototypes = [...area.querySelectorAll(".prototype")];
  const hidden = new Set();

  const show = () => {
    buttons.forEach((button, cluster) => button.setAttribute("aria-pressed", String(!hidden.has(cluster))));
    dots.forEach((dot, i) => dot.classList.toggle("gone", hidden.has(points[i][2])));
    prototypes.forEach((mark, cluster) => mark.classList.toggle("gone", hidden.has(cluster)));
  };
  const emphasise = (cluster) => {
    area.classList.toggle("dimmed", cluster !== null);
    dots.forEach((dot, i) => dot.classList.toggle("lit", points[i][2] === cluster));
  };
  buttons.forEach((button, cluster) => {
    button.addEventListener("click", (event) => {
      if (event.detail >= 2) {
        const alone = hidden.size === buttons.length - 1 && !hidden.has(cluster);
        hidden.clear();
        if (!alone) buttons.forEach((_, other) => other !== cluster && hidden.add(other));
      } else if (!hidden.delete(cluster)) {
        hidden.add(cluster);
      }
      show();
    });
    button.addEventListener("pointerenter", () => emphasise(hidden.has(cluster) ? null : cluster));
    button.addEventListener("pointerleave", () => emphasise(null));
  });

  const line = (text, name) => {
    const element = document.createElement(name);
    element.textContent = text;
    return element;
  };
  const forget = () => {
    tip.hidden = true;
    finder.hidden = true;
  };
  const describe = ([x, y, cluster, membership, id, values]) => {
    tip.replaceChildren(
      line(`row ${id}`, "b"),
      line(`cluster ${cluster}, membership ${membership}`, "span"),
      ...values.map((value, i) => {
        const entry = line("", "span");
        entry.append(line(columns[i], "i"), ` ${value}`);
        return entry;
      }),
    );
    for (const element of [tip, finder]) {
      element.hidden = false;
      element.style.left = `${(100 * x) / width}%`;
      element.style.top = `${(100 * y) / height}%`;
    }
    finder.className = `finder k${cluster}`;
    tip.classList.toggle("leftwards", x > 0.5 * width);
    tip.classList.toggle("upwards", y > 0.55 * height);
  };
  area.addEventListener("pointermove", (event) => {
    const box = area.getBoundingClientRect();
    const scale = width / box.width;
    const x = (event.clientX - box.left) * scale;
    const y = (event.clientY - box.top) * scale;
    let nearest = null;
    let least = (18 * scale) ** 2;
    for (const point of points) {
      const distance = (point[0] - x) ** 2 + (point[1] - y) ** 2;
      if (distance < least && !hidden.has(point[2])) {
        least = distance;
        nearest = point;
      }
    }
    if (nearest) describe(nearest);
    else forget();
  });
  area.addEventListener("pointerleave", forget);
})();
