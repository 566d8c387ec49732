"use strict";
(() => {
  const { noun, columns, points, alternatives, width, height } = JSON.parse(document.getElementById("points").textContent);
  const area = document.getElementById("map-area");
  const tip = area.querySelector(".tip");
  const finder = area.querySelector(".finder");
  const dots = [...area.querySelectorAll("svg path")];
  const prototypes = [...area.querySelectorAll(".prototype")];
  const legends = [...document.querySelectorAll(".legend")];
  const choices = [...document.querySelectorAll("[data-choice]")];
  const result = points.map((point) => point[2]);
  const hidden = new Set();
  // Partition shown on the map: 0 is the result, then the alternatives.
  let choice = 0;

  const clusters = () => (choice ? alternatives[choice - 1].labels : result);
  const kind = (cluster) => (cluster < 0 ? "outlier" : `k${cluster}`);
  const buttonsOf = (legend) => [...legend.querySelectorAll("button")];
  const clusterOf = (button) => Number(button.dataset.cluster);

  const show = () => {
    const labels = clusters();
    buttonsOf(legends[choice]).forEach((button) =>
      button.setAttribute("aria-pressed", String(!hidden.has(clusterOf(button)))),
    );
    dots.forEach((dot, i) => dot.setAttribute("class", kind(labels[i]) + (hidden.has(labels[i]) ? " gone" : "")));
    prototypes.forEach((mark, cluster) => mark.classList.toggle("gone", choice > 0 || hidden.has(cluster)));
  };
  const emphasise = (cluster) => {
    const labels = clusters();
    area.classList.toggle("dimmed", cluster !== null);
    dots.forEach((dot, i) => dot.classList.toggle("lit", labels[i] === cluster));
  };
  legends.forEach((legend) => {
    const buttons = buttonsOf(legend);
    buttons.forEach((button) => {
      const cluster = clusterOf(button);
      button.addEventListener("click", (event) => {
        if (event.detail >= 2) {
          const alone = hidden.size === buttons.length - 1 && !hidden.has(cluster);
          hidden.clear();
          if (!alone) buttons.forEach((other) => other !== button && hidden.add(clusterOf(other)));
        } else if (!hidden.delete(cluster)) {
          hidden.add(cluster);
        }
        show();
      });
      button.addEventListener("pointerenter", () => emphasise(hidden.has(cluster) ? null : cluster));
      button.addEventListener("pointerleave", () => emphasise(null));
    });
  });

  const choose = (index) => {
    choice = index;
    hidden.clear();
    hideTip();
    emphasise(null);
    choices.forEach((button) => button.setAttribute("aria-pressed", String(Number(button.dataset.choice) === index)));
    document.querySelectorAll("[data-of]").forEach((part) => (part.hidden = Number(part.dataset.of) !== index));
    area.classList.toggle("other", index > 0);
    show();
  };
  choices.forEach((button) => button.addEventListener("click", () => choose(Number(button.dataset.choice))));
  document.querySelectorAll("[data-clusters]").forEach((link) =>
    link.addEventListener("click", () =>
      choose(1 + alternatives.findIndex((other) => other.clusters === Number(link.dataset.clusters))),
    ),
  );

  const line = (text, name) => {
    const element = document.createElement(name);
    element.textContent = text;
    return element;
  };
  const hideTip = () => {
    tip.hidden = true;
    finder.hidden = true;
  };
  const membershipOf = (i) => {
    const cluster = clusters()[i];
    if (cluster < 0) return "outlier (in no cluster)";
    if (choice) return `cluster with ${alternatives[choice - 1].percents[cluster]} of the ${noun}s`;
    return `cluster ${cluster}, membership ${points[i][3]}`;
  };
  const describe = (i) => {
    const [x, y, , , id, values] = points[i];
    tip.replaceChildren(
      line(`${noun} ${id}`, "b"),
      line(membershipOf(i), "span"),
      ...values.map((value, index) => {
        const entry = line("", "span");
        entry.append(line(columns[index], "i"), ` ${value}`);
        return entry;
      }),
    );
    for (const element of [tip, finder]) {
      element.hidden = false;
      element.style.left = `${(100 * x) / width}%`;
      element.style.top = `${(100 * y) / height}%`;
    }
    finder.className = `finder ${kind(clusters()[i])}`;
    tip.classList.toggle("leftwards", x > 0.5 * width);
    tip.classList.toggle("upwards", y > 0.55 * height);
  };
  area.addEventListener("pointermove", (event) => {
    const labels = clusters();
    const box = area.getBoundingClientRect();
    const scale = width / box.width;
    const x = (event.clientX - box.left) * scale;
    const y = (event.clientY - box.top) * scale;
    let nearest = null;
    let least = (18 * scale) ** 2;
    points.forEach((point, i) => {
      const distance = (point[0] - x) ** 2 + (point[1] - y) ** 2;
      if (distance < least && !hidden.has(labels[i])) {
        least = distance;
        nearest = i;
      }
    });
    if (nearest === null) hideTip();
    else describe(nearest);
  });
  area.addEventListener("pointerleave", hideTip);
})();
