// What the form's page can do only with a script. It asks questions with a condition only if they apply. It sends the form
// in the background, so that a bad connection loses nothing. It keeps what was typed until the browser's tab is closed.
(function () {
  "use strict";
  var lang = document.documentElement.dataset.unknownLang;
  if (lang) {
    console.warn('Almoner: the language "' + lang + '" is not available. The form is in "' +
      document.documentElement.lang + '".');
  }

  // The draft of this form in this tab. The browser may not allow the storage.
  var place = "almoner " + location.pathname, hour = 3600000;
  function write(draft) {
    try {
      if (draft) sessionStorage.setItem(place, JSON.stringify(draft));
      else sessionStorage.removeItem(place);
    } catch (refused) { /* then a reload loses what was typed */ }
  }
  function read() {
    try {
      var draft = JSON.parse(sessionStorage.getItem(place));
      return draft && Date.now() - draft.at < hour ? draft : null;
    } catch (refused) { return null; }
  }
  if ("over" in document.body.dataset) write(null);

  var form = document.querySelector("form");
  var unsent = document.getElementById("offline");
  if (!form || !unsent) return;
  var button = form.querySelector("button"), label = button.textContent;
  var token = form.querySelector("[name=submissionToken]");
  var said = document.getElementById("said");
  var typedHere = form.id === "answers"; // otherwise the page only sends earlier answers again
  var sending = false, waiting = false, tried = false;

  function say(text) { if (said) said.textContent = text; } // to screen readers

  // Questions with a condition

  function ask(event) {
    var changes = [];
    form.querySelectorAll("[data-ask-if]").forEach(function (field) {
      var asked = new FormData(form).getAll(field.dataset.askIf).indexOf(field.dataset.equals) >= 0;
      if (field.hidden === asked) {
        var text = asked ? form.dataset.asked : form.dataset.notAsked;
        changes.push(text.replace("%s", function () { return field.dataset.label; }));
      }
      field.hidden = !asked;
      var hint = field.querySelector(".hint"); // when to answer the question, which the page decides now
      if (hint) hint.hidden = true;
      field.querySelectorAll("input, select, textarea").forEach(function (control) {
        control.disabled = !asked; // then it is not sent
        control.required = asked && "required" in control.dataset;
      });
    });
    if (event && changes.length) say(changes.join(" "));
  }

  // Drafts

  function kept(control) {
    return control.name.slice(0, 2) === "a." && control.type !== "password" && !control.closest(".consent");
  }
  function save() {
    if (!typedHere) return;
    var values = {};
    Array.prototype.filter.call(form.elements, kept).forEach(function (control) {
      var all = values[control.name] = values[control.name] || [];
      if (control.value && (control.type !== "checkbox" || control.checked)) all.push(control.value);
    });
    // A draft that may have arrived keeps its token, so that it counts once.
    write({ at: Date.now(), token: tried ? token.value : "", values: values });
  }
  function restore() {
    var draft = read(), any = false;
    if (!draft || !("fresh" in form.dataset)) return;
    Array.prototype.filter.call(form.elements, kept).forEach(function (control) {
      var all = draft.values[control.name] || [];
      if (control.type === "checkbox") control.checked = all.indexOf(control.value) >= 0;
      else if (all.length) control.value = all[0];
      any = any || all.length > 0;
    });
    if (draft.token) {
      token.value = draft.token;
      tried = true;
    }
    if (!any) return;
    form.before(document.getElementById("restored").content);
    document.querySelector(".note button").addEventListener("click", function () {
      write(null);
      location.replace(location.href);
    });
  }

  // Sending

  function tell(when) {
    unsent.hidden = !when;
    Array.prototype.forEach.call(unsent.children, function (text) { text.hidden = text.dataset.when !== when; });
    if (when) unsent.scrollIntoView({ block: "nearest" });
  }
  function stop(when) {
    sending = false;
    waiting = when === "offline";
    button.textContent = label;
    button.removeAttribute("aria-disabled");
    say("");
    tell(when);
  }
  function send() {
    if (sending) return;
    sending = tried = true;
    waiting = false;
    tell("");
    say(form.dataset.sending);
    button.textContent = form.dataset.sending;
    button.setAttribute("aria-disabled", "true");
    save();
    var control = new AbortController();
    var limit = setTimeout(function () { control.abort(); }, 30000);
    fetch(form.action, {
      method: "POST",
      body: new URLSearchParams(new FormData(form)),
      headers: { "Idempotency-Key": token.value }, // of one submission: sent again, it counts once
      signal: control.signal
    }).then(
      function (response) {
        clearTimeout(limit);
        if (response.redirected) { // to the page of the accepted answers
          write(null);
          location.replace(response.url);
        } else if (response.status === 429) stop("rateLimited");
        else if (response.status >= 500) stop("unavailable");
        else form.submit(); // the response accepted nothing: the browser sends the form again and shows it
      },
      function () {
        clearTimeout(limit);
        stop(navigator.onLine ? "noResponse" : "offline");
      }
    );
  }
  form.addEventListener("submit", function (event) {
    event.preventDefault();
    send();
  });
  window.addEventListener("online", function () { if (waiting) send(); });

  restore();
  ask();
  form.addEventListener("input", function () {
    if (waiting) stop(""); // answers that are being changed are not sent by themselves
    save();
  });
  form.addEventListener("change", ask);
  // The back button may show the page as it was left, or fill it in again.
  window.addEventListener("pageshow", function (event) {
    if (event.persisted) stop("");
    ask();
  });
})();
