// What the form's page can do only with a script. It asks questions with a condition only if they apply. It sends the
// form in the background, so that a bad connection loses nothing. It keeps what was typed in the browser's tab for half
// an hour.
(function () {
  "use strict";
  var lang = document.documentElement.dataset.unknownLang;
  if (lang) {
    console.warn('Almoner: the language "' + lang + '" is not available. The form is in "' +
      document.documentElement.lang + '".');
  }

  // The draft of this form in this tab. It ends half an hour after the first input, and is removed when the form's page
  // is opened after that, when the answers were accepted, or with the tab. The browser may not allow the storage.
  var place = "almoner " + location.pathname, halfHour = 1800000;
  function write(draft) {
    try {
      if (draft) sessionStorage.setItem(place, JSON.stringify(draft));
      else sessionStorage.removeItem(place);
    } catch (refused) { /* then a reload loses what was typed */ }
  }
  function read() {
    try {
      var draft = JSON.parse(sessionStorage.getItem(place));
      if (draft && Date.now() - draft.at < halfHour) return draft;
    } catch (refused) { /* then there is none */ }
    write(null);
    return null;
  }
  if ("over" in document.body.dataset) write(null);
  var draft = read();

  var form = document.querySelector("form");
  var unsent = document.getElementById("offline");
  if (!form || !unsent || !("sending" in form.dataset)) return; // without it, the page is of an earlier release
  var button = form.querySelector("button"), label = button.textContent;
  var token = form.querySelector("[name=submissionToken]");
  var said = document.getElementById("said");
  var typedHere = form.id === "answers"; // otherwise the page only sends earlier answers again
  var sending = false, waiting = false;
  var began = draft ? draft.at : 0, fresh = token && token.value; // the page's own token
  var sent = null; // the answers that were sent and may have arrived, and their token

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
      if (hint && !hint.hidden) hide(hint);
      field.querySelectorAll("input, select, textarea").forEach(function (control) {
        control.disabled = !asked; // then it is not sent
        control.required = asked && "required" in control.dataset;
      });
    });
    if (event && changes.length) say(changes.join(" "));
  }

  function hide(hint) {
    hint.hidden = true;
    form.querySelectorAll('[aria-describedby~="' + hint.id + '"]').forEach(function (described) {
      var rest = described.getAttribute("aria-describedby").replace(hint.id, "").trim();
      if (rest) described.setAttribute("aria-describedby", rest);
      else described.removeAttribute("aria-describedby");
    });
  }

  // Drafts

  function kept(control) {
    return control.name.slice(0, 2) === "a." && control.type !== "password" && !control.closest(".consent");
  }
  function typed() {
    var values = {};
    Array.prototype.filter.call(form.elements, kept).forEach(function (control) {
      var all = values[control.name] = values[control.name] || [];
      if (control.value && (control.type !== "checkbox" || control.checked)) all.push(control.value);
    });
    return values;
  }
  // The answers that may have arrived keep their token, so that they count once. Other answers get the page's own.
  function save() {
    if (!typedHere) return;
    var values = typed(), again = sent && JSON.stringify(values) === JSON.stringify(sent.values);
    token.value = again ? sent.token : fresh;
    began = began || Date.now();
    write({ at: began, token: again ? sent.token : "", values: values });
  }
  function restore() {
    var any = false;
    if (!draft || !("fresh" in form.dataset)) return;
    Array.prototype.filter.call(form.elements, kept).forEach(function (control) {
      var all = draft.values[control.name] || [];
      if (control.type === "checkbox") control.checked = all.indexOf(control.value) >= 0;
      else if (all.length) control.value = all[0];
      any = any || all.length > 0;
    });
    if (!any) return;
    if (draft.token) {
      sent = { token: draft.token, values: draft.values };
      save();
    }
    form.before(document.getElementById("restored").content);
    setTimeout(say, 500, document.querySelector(".note p").textContent); // what changes during the load is not read out
    document.querySelector(".note button").addEventListener("click", function () {
      write(null);
      location.replace(location.pathname + location.search);
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
    sending = true;
    waiting = false;
    tell("");
    say(form.dataset.sending);
    button.textContent = form.dataset.sending;
    button.setAttribute("aria-disabled", "true");
    if (typedHere) sent = { token: token.value, values: typed() };
    save();
    var control = new AbortController();
    var limit = setTimeout(function () { control.abort(); }, 30000);
    fetch(form.action, {
      method: "POST",
      body: new URLSearchParams(new FormData(form)),
      signal: control.signal
    }).then(
      function (response) {
        clearTimeout(limit);
        var to = new URL(response.url), wait = response.headers.has("Retry-After");
        if (response.redirected && to.searchParams.has("submission")) { // the page of the accepted answers
          write(null);
          location.replace(response.url);
        } else if (response.status === 429) stop("rateLimited");
        else if (response.status === 503 && wait) stop("unavailable");
        else {
          if (response.status === 409) { // the token has other answers: these get another one when the form is opened
            sent = null;
            save();
          }
          form.submit(); // the response accepted nothing: the browser sends the form again and shows it
        }
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
