"use strict";
(() => {
  const data = JSON.parse(document.getElementById("points").textContent);
  const { noun, columns, alternatives, names, width, height, id, membership } = data;
  const byId = (name) => document.getElementById(name);
  const area = byId("map-area");
  const [tip, finder, lasso] = ["tip", "finder", "lasso"].map((name) => area.querySelector(`.${name}`));
  const dots = [...area.querySelectorAll("svg path")];
  const labels = [...area.querySelectorAll(".prototype")];
  const legends = [...document.querySelectorAll(".legend")];
  const choices = [...document.querySelectorAll("[data-choice]")];
  const [axisX, axisY, search, pick] = ["axis-x", "axis-y", "search", "pick"].map(byId);
  const drawn = { grid: byId("grid").innerHTML, ticks: byId("ticks").innerHTML };
  const hidden = new Set();
  const selected = new Set();
  let choice = 0; // partition on the map: 0 is the result, then the alternatives
  let hovered = null; // cluster that the pointer is at in the legend
  let axes = null; // columns on the axes; null for the map
  let xs = data.x;
  let ys = data.y;
  let middles = data.labels;

  // Texts
  const element = (name, text = "", kind = "") => {
    const made = document.createElement(name);
    made.textContent = text;
    if (kind) made.className = kind;
    return made;
  };
  const count = (n, word) => `${n.toLocaleString("en-US")} ${word}${n === 1 ? "" : "s"}`;
  const formatNumber = (value) => {
    const size = Math.abs(value);
    const digits = size >= 1000 || Number.isInteger(value) ? 0 : Math.min(3 - Math.floor(Math.log10(size)), 12);
    const large = size >= 1e9 || (size > 0 && size < 1e-4);
    const text = large ? value.toExponential(2) : value.toLocaleString("en-US", { maximumFractionDigits: digits });
    return text.replace("-", "−");
  };
  const formatDate = (seconds, days) => {
    const date = new Date(seconds * 1000);
    return Number.isNaN(date.getTime()) ? "–" : date.toISOString().replace("T", " ").slice(0, days ? 10 : 16);
  };
  const textOf = (column, i) => {
    const value = column.values[i];
    if (value === null) return "missing";
    if (column.kind === "text") return column.levels[value];
    if (typeof value !== "number") return value;
    return column.kind === "date" ? formatDate(value, column.days) : formatNumber(value);
  };

  // Clusters on the map
  const clusters = () => (choice ? alternatives[choice - 1].labels : data.cluster);
  const kind = (cluster) => (cluster < 0 ? "outlier" : `k${cluster}`);
  const isShown = (i) => xs[i] !== null && ys[i] !== null && !hidden.has(clusters()[i]);
  const show = () => {
    const current = clusters();
    legends[choice].querySelectorAll("button[data-cluster]").forEach((button) =>
      button.setAttribute("aria-pressed", String(!hidden.has(Number(button.dataset.cluster)))),
    );
    legends[choice].querySelectorAll("button[data-group]").forEach((button) =>
      button.setAttribute("aria-pressed", String(!clustersOf(button).every((cluster) => hidden.has(cluster)))),
    );
    area.classList.toggle("dimmed", hovered !== null || selected.size > 0);
    dots.forEach((dot, i) => {
      const lit = hovered === null ? selected.has(i) : current[i] === hovered;
      dot.setAttribute("class", kind(current[i]) + (isShown(i) ? "" : " gone") + (lit ? " lit" : ""));
    });
    placeLabels();
  };
  const clustersOf = (button) => (button.dataset.group ?? button.dataset.cluster).split(",").map(Number);
  const showAlone = (own, all) => {
    const alone = all.every((cluster) => hidden.has(cluster) !== own.includes(cluster));
    hidden.clear();
    if (!alone) all.filter((cluster) => !own.includes(cluster)).forEach((cluster) => hidden.add(cluster));
  };
  legends.forEach((legend) => {
    const all = [...legend.querySelectorAll("button[data-cluster]")].flatMap(clustersOf);
    legend.querySelectorAll("button").forEach((button) => {
      const own = clustersOf(button);
      button.addEventListener("click", (event) => {
        if (event.detail === 2) {
          own.forEach((cluster) => hidden.delete(cluster));
          showAlone(own, all);
        } else {
          const hide = !own.every((cluster) => hidden.has(cluster));
          own.forEach((cluster) => (hide ? hidden.add(cluster) : hidden.delete(cluster)));
        }
        show();
      });
      if (own.length > 1) return;
      const hover = (cluster) => {
        hovered = cluster;
        show();
      };
      button.addEventListener("pointerenter", () => hover(hidden.has(own[0]) ? null : own[0]));
      button.addEventListener("pointerleave", () => hover(null));
    });
  });

  // Numbers and names of the clusters, moved apart; a name is left out where there is no room
  const touches = (a, b) => a.x < b.x + b.w && b.x < a.x + a.w && a.y < b.y + b.h && b.y < a.y + a.h;
  const placeLabels = () => {
    const box = { x: 0, y: 0, w: area.clientWidth, h: area.clientHeight };
    const scale = box.w / width;
    const placed = [];
    labels.forEach((label, cluster) => {
      label.hidden = !middles[cluster] || choice > 0 || hidden.has(cluster);
      label.classList.remove("named");
      if (!label.hidden) placed.push({ label, cluster, x: middles[cluster][0] * scale, y: middles[cluster][1] * scale });
    });
    const apart = placed.length ? placed[0].label.offsetHeight + 2 : 0;
    // Clusters are in the order of their sizes: where there is little room, the largest have a number.
    placed.splice((box.w * box.h) / (6 * apart ** 2)).forEach(({ label }) => (label.hidden = true));
    for (let round = 0; round < 20; round++) {
      placed.forEach((a, i) =>
        placed.slice(i + 1).forEach((b) => {
          const [dx, dy] = [b.x - a.x || 0.01 * (i + 1), b.y - a.y || 0.01];
          const distance = Math.hypot(dx, dy);
          const push = (apart - distance) / 2 / distance;
          if (push <= 0) return;
          a.x -= dx * push;
          a.y -= dy * push;
          b.x += dx * push;
          b.y += dy * push;
        }),
      );
    }
    const taken = placed.map(({ x, y }) => ({ x: x - apart / 2, y: y - apart / 2, w: apart, h: apart }));
    placed.forEach(({ label, cluster, x, y }) => {
      label.style.left = `${(100 * x) / box.w}%`;
      label.style.top = `${(100 * y) / box.h}%`;
      if (!names[cluster]) return;
      if (!label.lastElementChild) label.append(element("span", names[cluster], "label-name"));
      label.classList.add("named");
      const [w, h] = [label.lastElementChild.offsetWidth, label.lastElementChild.offsetHeight];
      const sides = [
        [apart / 2, -h / 2],
        [-apart / 2 - w, -h / 2],
        [-w / 2, apart / 2],
        [-w / 2, -apart / 2 - h],
      ];
      const free = sides.find(([right, down]) => {
        const at = { x: x + right, y: y + down, w, h };
        const inside = at.x >= 0 && at.y >= 0 && at.x + w <= box.w && at.y + h <= box.h;
        return inside && !taken.some((other) => touches(at, other)) && taken.push(at);
      });
      label.classList.toggle("named", Boolean(free));
      if (free) label.lastElementChild.style.translate = `${free[0]}px ${free[1]}px`;
    });
  };
  const makeRoomForTicks = () => {
    const widths = [...byId("ticks").querySelectorAll(".beside")].map((tick) => tick.offsetWidth);
    byId("frame").style.marginLeft = `${widths.length ? Math.max(...widths, 32) + 12 : 0}px`;
  };
  new ResizeObserver(placeLabels).observe(area);

  // Other partitions
  const choose = (index) => {
    choice = index;
    hidden.clear();
    hovered = null;
    hideTip();
    choices.forEach((button) => button.setAttribute("aria-pressed", String(Number(button.dataset.choice) === index)));
    document.querySelectorAll("[data-of]").forEach((part) => (part.hidden = Number(part.dataset.of) !== index));
    area.classList.toggle("other", choice > 0 || axes !== null);
    offerClusters();
    select([]);
  };
  choices.forEach((button) => button.addEventListener("click", () => choose(Number(button.dataset.choice))));
  document.querySelectorAll("[data-clusters]").forEach((link) =>
    link.addEventListener("click", () =>
      choose(1 + alternatives.findIndex((other) => other.clusters === Number(link.dataset.clusters))),
    ),
  );

  // Columns on the axes
  const niceTicks = (low, high) => {
    const raw = (high - low) / 5;
    const power = 10 ** Math.floor(Math.log10(raw));
    const step = power * [1, 2, 5, 10].find((times) => times * power >= raw * 0.999);
    const first = Math.ceil(low / step);
    return Array.from({ length: Math.max(0, Math.floor(high / step) - first + 1) }, (_, i) => (first + i) * step);
  };
  const scaleOf = (column) => {
    const present = column.values.filter((value) => typeof value === "number");
    const least = present.reduce((a, b) => Math.min(a, b), Infinity);
    const most = present.reduce((a, b) => Math.max(a, b), -Infinity);
    const pad = 0.05 * (most - least) || Math.abs(most) || 1;
    const [low, high] = [least - pad, most + pad];
    const dates = [0.05, 0.275, 0.5, 0.725, 0.95].map((part) => low + part * (high - low));
    const isDate = column.kind === "date";
    return {
      at: column.values.map((value) => (typeof value === "number" ? (value - low) / (high - low) : null)),
      ticks: (isDate ? dates : niceTicks(low, high)).map((value) => [
        (value - low) / (high - low),
        isDate ? formatDate(value, high - low > 172800) : formatNumber(value),
      ]),
    };
  };
  const medianOf = (values) => values.sort((a, b) => a - b)[values.length >> 1];
  const redraw = () => {
    byId("grid").innerHTML = drawn.grid;
    byId("ticks").innerHTML = drawn.ticks;
    [xs, ys, middles] = [data.x, data.y, data.labels];
    let titles = data.titles;
    if (axes) {
      const [right, up] = axes.map(scaleOf);
      xs = right.at.map((at) => at && Number((at * width).toFixed(1)));
      ys = up.at.map((at) => at && Number(((1 - at) * height).toFixed(1)));
      middles = labels.map((_, cluster) => {
        const own = xs.flatMap((x, i) => (data.cluster[i] === cluster && x !== null && ys[i] !== null ? [i] : []));
        return own.length ? [medianOf(own.map((i) => xs[i])), medianOf(own.map((i) => ys[i]))] : null;
      });
      titles = axes.map((column) => column.name);
      byId("grid").replaceChildren();
      byId("ticks").replaceChildren();
      [
        [right, "down", "below", "left"],
        [up, "across", "beside", "bottom"],
      ].forEach(([scale, rule, side, edge]) =>
        scale.ticks.forEach(([at, text]) => {
          const [line, label] = [element("i", "", `rule ${rule}`), element("span", text, `tick ${side}`)];
          line.style[edge] = label.style[edge] = `${100 * at}%`;
          byId("grid").append(line);
          byId("ticks").append(label);
        }),
      );
    }
    [byId("title-x"), byId("title-y")].forEach((title, i) => {
      title.hidden = !titles[i];
      title.textContent = i ? `↑ ${titles[i]}` : `${titles[i]} →`;
    });
    dots.forEach((dot, i) => xs[i] !== null && ys[i] !== null && dot.setAttribute("d", `M${xs[i]} ${ys[i]}h0`));
    area.classList.toggle("other", choice > 0 || axes !== null);
    makeRoomForTicks();
    hideTip();
    show();
  };
  const numeric = columns.filter((column) => column.kind !== "text" && new Set(column.values).size > 1);
  const option = (text, value) => {
    const made = element("option", text);
    made.value = value;
    return made;
  };
  if (axisX && numeric.length > 1) {
    const selects = [axisX, axisY];
    selects.forEach((list, i) => {
      list.append(option(data.map || "map", ""), ...numeric.map((column, index) => option(column.name, index)));
      list.addEventListener("change", () => {
        const other = selects[1 - i];
        if (list.value === "") other.value = "";
        else if (other.value === "") other.value = numeric.findIndex((_, index) => index !== Number(list.value));
        axes = list.value === "" ? null : selects.map((each) => numeric[Number(each.value)]);
        redraw();
      });
    });
  } else if (axisX) {
    [axisX, axisY].forEach((list) => (list.parentElement.hidden = true));
  }

  // Selection
  const nameOf = (cluster) => (cluster < 0 ? "outliers" : `cluster ${cluster}`);
  const offerClusters = () => {
    const present = [...new Set(clusters())].sort((a, b) => (a < 0) - (b < 0) || a - b);
    pick.replaceChildren(option("a cluster", ""), ...present.map((cluster) => option(nameOf(cluster), cluster)));
  };
  const cellsOf = (i) => {
    const own = choice ? null : membership[i];
    return [id[i], String(clusters()[i]), own === null ? "" : String(own)];
  };
  const inOrder = () => [...selected].sort((a, b) => data.row[a] - data.row[b]);
  const header = () => [noun, "cluster", "membership"];
  const select = (points, keep = false) => {
    if (!keep) selected.clear();
    points.forEach((i) => selected.add(i));
    byId("selected").hidden = selected.size === 0;
    byId("count").textContent = `${count(selected.size, noun)} selected`;
    const shown = inOrder().slice(0, 20);
    const row = (cells, name) => {
      const made = element("tr");
      made.append(...cells.map((cell) => element(name, cell)));
      return made;
    };
    const [head, body] = byId("selected").querySelectorAll("thead, tbody");
    head.replaceChildren(row([...header(), ...columns.map((column) => column.name)], "th"));
    body.replaceChildren(
      ...shown.map((i) => row([...cellsOf(i), ...columns.map((column) => textOf(column, i))], "td")),
    );
    if (selected.size > shown.length) body.append(row([`and ${count(selected.size - shown.length, "other")}`], "td"));
    show();
  };
  const matches = (query, i) => {
    const number = Number(query.replaceAll(",", ""));
    return columns.some((column) => {
      if (typeof column.values[i] === "number" && column.kind === "number") return column.values[i] === number;
      return textOf(column, i).toLowerCase().includes(query);
    });
  };
  search.addEventListener("input", () => {
    const query = search.value.trim().toLowerCase();
    const every = query ? [...id.keys()] : [];
    const same = every.filter((i) => id[i].toLowerCase() === query);
    const some = same.length ? same : every.filter((i) => id[i].toLowerCase().includes(query) || matches(query, i));
    pick.value = "";
    select(some);
    if (query && !some.length) {
      byId("selected").hidden = false;
      byId("count").textContent = `No ${noun} on the map matches`;
    }
  });
  pick.addEventListener("change", () => {
    search.value = "";
    const labelsNow = clusters();
    select(pick.value === "" ? [] : [...id.keys()].filter((i) => labelsNow[i] === Number(pick.value)));
  });
  byId("clear").addEventListener("click", () => {
    search.value = pick.value = "";
    select([]);
  });
  byId("tools").addEventListener("submit", (event) => event.preventDefault());
  // A spreadsheet would run a text that begins like a formula; an apostrophe makes it a text.
  const defuse = (text) => (/^[=+\-@\t\r]/.test(text) && Number.isNaN(Number(text)) ? `'${text}` : text);
  const quote = (cell) => {
    const text = defuse(cell === null ? "" : String(cell));
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  byId("download").addEventListener("click", () => {
    const values = (i) => columns.map((column) => (column.kind === "number" ? column.values[i] : raw(column, i)));
    const raw = (column, i) => (column.values[i] === null ? "" : textOf(column, i));
    const lines = [[...header(), ...columns.map((column) => column.full)]];
    inOrder().forEach((i) => lines.push([...cellsOf(i), ...values(i)]));
    const link = element("a");
    const text = lines.map((line) => line.map(quote).join(",")).join("\r\n");
    link.href = URL.createObjectURL(new Blob([text, "\r\n"], { type: "text/csv" }));
    link.download = "selected.csv";
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  });

  // The pointer on the map
  const hideTip = () => {
    tip.hidden = true;
    finder.hidden = true;
  };
  const membershipOf = (i) => {
    const cluster = clusters()[i];
    if (cluster < 0) return "outlier (in no cluster)";
    if (choice) return `cluster with ${alternatives[choice - 1].percents[cluster]} of the ${noun}s`;
    const percent = Math.round(100 * membership[i]);
    return `cluster ${cluster}, membership ${percent === 100 && membership[i] < 1 ? ">99" : percent}%`;
  };
  const describe = (i) => {
    tip.replaceChildren(
      element("b", `${noun} ${id[i]}`),
      element("span", membershipOf(i)),
      ...columns.slice(0, data.tip).map((column) => {
        const entry = element("span");
        entry.append(element("i", column.name), " ", element("bdi", textOf(column, i)));
        return entry;
      }),
    );
    for (const each of [tip, finder]) {
      each.hidden = false;
      each.style.left = `${(100 * xs[i]) / width}%`;
      each.style.top = `${(100 * ys[i]) / height}%`;
    }
    finder.className = `finder ${kind(clusters()[i])}`;
    tip.classList.toggle("leftwards", xs[i] > 0.5 * width);
    tip.classList.toggle("upwards", ys[i] > 0.55 * height);
  };
  const positionOf = (event) => {
    const box = area.getBoundingClientRect();
    const scale = width / box.width;
    return { x: (event.clientX - box.left) * scale, y: (event.clientY - box.top) * scale, reach: 18 * scale };
  };
  const nearestTo = ({ x, y, reach }) => {
    let nearest = null;
    let least = reach ** 2;
    dots.forEach((_, i) => {
      const distance = (xs[i] - x) ** 2 + (ys[i] - y) ** 2;
      if (distance < least && isShown(i)) {
        least = distance;
        nearest = i;
      }
    });
    return nearest;
  };
  let start = null; // where the pointer went down
  let frame = null; // rectangle that it has drawn since
  area.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    start = positionOf(event);
    frame = null;
  });
  area.addEventListener("pointermove", (event) => {
    const at = positionOf(event);
    if (start && event.pointerType !== "touch" && (frame || Math.hypot(at.x - start.x, at.y - start.y) > at.reach / 3)) {
      if (!frame) area.setPointerCapture(event.pointerId);
      frame = [Math.min(at.x, start.x), Math.min(at.y, start.y), Math.max(at.x, start.x), Math.max(at.y, start.y)];
      lasso.hidden = false;
      lasso.style.inset = [frame[1] / height, 1 - frame[2] / width, 1 - frame[3] / height, frame[0] / width]
        .map((part) => `${100 * part}%`)
        .join(" ");
      hideTip();
      return;
    }
    const nearest = nearestTo(at);
    if (nearest === null) hideTip();
    else describe(nearest);
  });
  area.addEventListener("pointerup", (event) => {
    if (!start) return;
    const keep = event.shiftKey || event.ctrlKey || event.metaKey;
    search.value = pick.value = "";
    if (frame) {
      const [left, top, right, bottom] = frame;
      const inside = (i) => isShown(i) && xs[i] >= left && xs[i] <= right && ys[i] >= top && ys[i] <= bottom;
      select([...id.keys()].filter(inside), keep);
    } else {
      const nearest = nearestTo(positionOf(event));
      select(nearest === null ? [] : [nearest], keep);
    }
    stop();
  });
  const stop = () => {
    start = frame = null;
    lasso.hidden = true;
  };
  area.addEventListener("pointercancel", stop);
  area.addEventListener("pointerleave", hideTip);

  // A link to a cluster opens the group that it is in.
  const openGroup = () => {
    const target = location.hash && byId(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    for (let at = target.closest("details"); at; at = at.parentElement.closest("details")) at.open = true;
    target.scrollIntoView();
  };
  window.addEventListener("hashchange", openGroup);
  openGroup();

  byId("tools").hidden = false;
  offerClusters();
  makeRoomForTicks();
  placeLabels();
})();
