// Adds a search, copy buttons, a choice of language, and requests with a token that the user pastes. The token is stored
// in sessionStorage, which the browser deletes with the tab, and is sent only to this API.
(function () {
  "use strict";

  // An address such as /v1/docs#listProgrammes leads to the page of the operation, where it is open. Most browsers open
  // it without the script too.
  function follow() {
    var target = document.getElementById(location.hash.slice(1)), page = target && target.dataset.page;
    if (page) location.replace(page + (target.matches("li") ? location.hash : ""));
    var fold = target && target.closest(".operation");
    if (fold && !fold.open) {
      fold.open = true;
      target.scrollIntoView();
    }
  }
  follow();
  addEventListener("hashchange", follow);

  function all(selector, within) { return Array.from((within || document).querySelectorAll(selector)); }
  function make(name, text, className) {
    var element = document.createElement(name);
    if (text) element.textContent = text;
    if (className) element.className = className;
    return element;
  }
  function button(text, press) {
    var element = make("button", text);
    element.type = "button";
    element.addEventListener("click", function () { press(element); });
    return element;
  }
  function label(text, input) {
    var element = make("label", text);
    input.autocomplete = "off";
    input.spellcheck = false;
    element.append(input);
    return element;
  }

  // The pasted values. Without sessionStorage they are lost when the page is reloaded.
  var values = { token: "", tenant: "" };
  var valid = { token: /^[A-Za-z0-9._~+\/=-]{1,4096}$/, tenant: /^[0-9a-fA-F-]{36}$/ };
  function keep(name, value) {
    values[name] = value;
    try {
      if (value) sessionStorage.setItem("almoner." + name, value);
      else sessionStorage.removeItem("almoner." + name);
    } catch (refused) { /* the page works without */ }
  }
  Object.keys(values).forEach(function (name) {
    try {
      var kept = sessionStorage.getItem("almoner." + name) || "";
      if (valid[name].test(kept)) values[name] = kept;
    } catch (refused) { /* the page works without */ }
  });

  // fill replaces the placeholders of an example with the pasted values.
  function fill(text) {
    Object.keys(values).forEach(function (name) {
      var value = values[name], variable = { token: "TOKEN", tenant: "WORKSPACE" }[name];
      if (!value) return;
      text = text.replaceAll("$" + variable, value);
      ['os.Getenv("' + variable + '")', "process.env." + variable, 'os.environ["' + variable + '"]'].forEach(
        function (placeholder) { text = text.replaceAll(placeholder, '"' + value + '"'); });
    });
    return text;
  }

  var status = document.getElementById("status");

  function copyButton(find) {
    return button("Copy", function (element) {
      navigator.clipboard.writeText(fill(find().textContent)).then(function () {
        element.textContent = "Copied";
        status.textContent = "Copied";
      }, function () {
        element.textContent = "Press Ctrl+C";
        getSelection().selectAllChildren(find());
      });
      setTimeout(function () { element.textContent = "Copy"; status.textContent = ""; }, 2000);
    });
  }
  all(".text pre").forEach(function (pre) {
    var around = make("div", "", "copied");
    pre.before(around);
    around.append(pre, copyButton(function () { return pre.firstElementChild; }));
  });

  // A click on a heading copies its link.
  all("h2 > a").forEach(function (link) {
    link.addEventListener("click", function () {
      if (navigator.clipboard) navigator.clipboard.writeText(link.href).then(function () {
        status.textContent = "Link copied";
        setTimeout(function () { status.textContent = ""; }, 2000);
      }, function () { /* the address bar has it too */ });
    });
  });

  // Examples: one language for all of them.
  var figures = all("figure.request");
  function choose(language) {
    try { sessionStorage.setItem("almoner.language", language); } catch (refused) { /* the page works without */ }
    figures.forEach(function (figure) {
      all("details", figure).forEach(function (one) { one.open = one.dataset.language === language; });
      all(".tabs button", figure).forEach(function (one) {
        one.setAttribute("aria-pressed", String(one.textContent === language));
      });
    });
  }
  figures.forEach(function (figure) {
    var tabs = make("div", "", "tabs");
    tabs.setAttribute("role", "group");
    tabs.setAttribute("aria-label", "Language");
    all("details", figure).forEach(function (one) {
      one.removeAttribute("name");
      tabs.append(button(one.dataset.language, function (pressed) {
        var before = pressed.getBoundingClientRect().top;
        choose(pressed.textContent);
        scrollBy(0, pressed.getBoundingClientRect().top - before); // examples above may have another height now
      }));
    });
    figure.classList.add("tabbed");
    figure.querySelector("figcaption span").classList.add("unseen");
    figure.querySelector("figcaption").append(tabs);
  });
  var language = "curl";
  try { language = sessionStorage.getItem("almoner.language") || language; } catch (refused) { /* as before */ }
  if (!figures.length || !figures[0].querySelector('[data-language="' + CSS.escape(language) + '"]')) language = "curl";
  choose(language);
  all("figure").forEach(function (figure) {
    figure.querySelector("figcaption").append(copyButton(function () {
      return figure.querySelector(":scope details[open] code") || figure.querySelector("code");
    }));
  });

  // Requests.
  function send(path, bearer, line, output) {
    var address;
    try { address = new URL(path, location.origin); } catch (invalid) { /* no address */ }
    if (!address || address.origin !== location.origin || !address.pathname.startsWith("/v1/")) {
      line.textContent = "The path must begin with /v1/.";
      return;
    }
    var headers = {};
    if (bearer && !values.token) {
      line.textContent = "Paste a token at the top of the page first.";
      document.getElementById("keys").open = true;
      return;
    }
    if (bearer) headers.Authorization = "Bearer " + values.token;
    if (bearer && values.tenant) headers["X-Tenant-Id"] = values.tenant;
    line.textContent = "Sending…";
    output.hidden = true;
    fetch(address, { headers: headers, credentials: "omit", cache: "no-store", redirect: "error" }).then(function (answer) {
      return answer.text().then(function (text) {
        try { text = JSON.stringify(JSON.parse(text), null, 2); } catch (other) { /* not JSON */ }
        line.textContent = "Status " + answer.status + (answer.headers.get("X-Request-Id") ?
          ", request id " + answer.headers.get("X-Request-Id") : "");
        output.textContent = text.length > 100000 ? text.slice(0, 100000) + "…" : text;
        output.hidden = !text;
      });
    }).catch(function () { line.textContent = "No response. Check the connection and try again."; });
  }
  all(".code[data-try]").forEach(function (code) {
    var figure = code.querySelector("figure.request"), panel;
    figure.querySelector("figcaption").append(button("Try it", function (pressed) {
      if (!panel) {
        var path = make("input"), line = make("p"), output = make("pre");
        path.value = code.dataset.try;
        line.setAttribute("role", "status");
        output.tabIndex = 0;
        output.hidden = true;
        var go = button("Send", function () { send(path.value, code.dataset.access === "Bearer token", line, output); });
        path.addEventListener("keydown", function (event) { if (event.key === "Enter") go.click(); });
        panel = make("div", "", "try");
        panel.hidden = true;
        panel.append(label("GET", path), go, line, output);
        figure.append(panel);
      }
      panel.hidden = !panel.hidden;
      pressed.setAttribute("aria-expanded", String(!panel.hidden));
      if (!panel.hidden) panel.querySelector("input").focus();
    }));
  });

  // The token.
  var keys = document.getElementById("keys");
  var wrong = keys.querySelector(".wrong");
  var says = {
    token: "A token contains only letters, digits and the characters . _ ~ + / = -",
    tenant: "Enter a workspace ID, like 0199a1c2-7f41-7c55-8b9e-3a4f5d6e7f80."
  };
  all("input", keys).forEach(function (input) {
    input.value = values[input.name];
    input.addEventListener("input", function () {
      var value = input.value.trim(), good = !value || valid[input.name].test(value);
      input.setAttribute("aria-invalid", String(!good));
      wrong.textContent = good ? "" : says[input.name];
      keep(input.name, good ? value : "");
    });
  });
  keys.querySelector("button").addEventListener("click", function () {
    all("input", keys).forEach(function (input) { input.value = ""; keep(input.name, ""); });
    wrong.textContent = "";
    keys.querySelector("input").focus();
  });
  keys.hidden = false;

  // The search, in the contents of every page. It finds groups, operations and chapters of all pages.
  all(".contents").forEach(function (contents) {
    var input = contents.querySelector(".filter input"), found = contents.querySelector(".found");
    var lists = all("li ul", contents), closed = lists.filter(function (list) { return list.hidden; });
    var links = all("li a", contents).map(function (link) {
      var list = link.closest("li ul"), title = list && list.parentNode.querySelector(".title");
      return { link: link, text: [link.textContent, title ? title.textContent : "", link.dataset.words || ""].join(" ").toLowerCase() };
    });
    var hits = [];
    function search() {
      var words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      hits = links.filter(function (one) {
        return words.every(function (word) { return one.text.includes(word); });
      }).map(function (one) { return one.link; });
      links.forEach(function (one) { one.link.parentNode.hidden = !hits.includes(one.link); });
      lists.forEach(function (list) {
        var has = hits.some(function (link) { return list.contains(link); });
        list.hidden = words.length ? !has : closed.includes(list);
        if (has) list.parentNode.hidden = false;
      });
      found.textContent = !words.length ? "" : !hits.length ? "Nothing found" :
        hits.length === 1 ? "1 result" : hits.length + " results";
    }
    function clear() { input.value = ""; search(); }
    input.parentNode.hidden = false;
    input.addEventListener("input", search);
    input.addEventListener("keydown", function (event) {
      if (event.key === "Escape") clear();
      if (event.key === "Enter" && input.value && hits.length) hits[0].click();
    });
    contents.addEventListener("keydown", function (event) { // the arrow keys lead through what is shown
      var step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      var stops = [input].concat(all("li a", contents).filter(function (link) { return link.getClientRects().length; }));
      var at = stops.indexOf(document.activeElement);
      if (!step || at < 0) return;
      var next = stops[at + step];
      if (next) next.focus();
      event.preventDefault();
    });
    contents.addEventListener("click", function (event) {
      if (!event.target.matches("li a")) return;
      if (input.value) clear();
      if (contents.matches("details")) contents.open = false;
    });
  });
  // The contents mark the operation that is read.
  var watch = new IntersectionObserver(function (changes) {
    changes.forEach(function (change) {
      if (!change.isIntersecting) return;
      all(".contents li a").forEach(function (link) {
        if (link.getAttribute("href") === "#" + change.target.id) link.setAttribute("aria-current", "location");
        else if (link.getAttribute("aria-current") === "location") link.removeAttribute("aria-current");
      });
    });
  }, { rootMargin: "-15% 0px -80% 0px" });
  all(".body").forEach(function (body) {
    watch.observe(body);
    body.parentNode.firstElementChild.addEventListener("click", function () { // its address can be copied
      if (!body.parentNode.open) history.replaceState(null, "", "#" + body.id);
    });
  });

  // The key / leads to the search. The focus moves when it is released, so that it is not typed there.
  function leads(event) {
    return event.key === "/" && !event.ctrlKey && !event.metaKey && !event.altKey && !event.target.matches("input");
  }
  addEventListener("keydown", function (event) { if (leads(event)) event.preventDefault(); });
  addEventListener("keyup", function (event) {
    if (!leads(event)) return;
    var contents = all(".contents").find(function (one) { return one.getClientRects().length; });
    if (contents.matches("details")) contents.open = true;
    contents.querySelector(".filter input").focus();
  });
})();
