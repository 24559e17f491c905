// Forms with a password: while the server has too many passwords to check (429 without a limit of this network), the form is sent
// again by itself, and the password is typed once. Without this file, the page says when to send it again.
(function () {
  var busy = "Many people are signing in right now. Keep this page open: it tries again automatically every few seconds.";

  function show(html) {
    document.open();
    document.write(html);
    document.close();
    var field = document.querySelector("[autofocus]");
    if (field) {
      field.focus();
    }
  }

  function send(form, note) {
    var fields = new URLSearchParams(new FormData(form));
    return fetch(form.action, { method: "POST", body: fields, redirect: "manual" }).then(function (answer) {
      if (answer.type === "opaqueredirect") {
        location.assign(fields.get("return") || "/");
        return;
      }
      if (answer.status !== 429 || answer.headers.has("RateLimit")) {
        return answer.text().then(show);
      }
      note.textContent = busy;
      note.hidden = false;
      var seconds = Number(answer.headers.get("Retry-After")) + Math.random(); // not all at the same moment
      return new Promise(function (done) {
        setTimeout(done, seconds * 1000);
      }).then(function () {
        return send(form, note);
      });
    });
  }

  document.querySelectorAll("form[data-waits]").forEach(function (form) {
    var sent = false;
    form.addEventListener("submit", function (event) {
      event.preventDefault();
      if (sent) {
        return;
      }
      sent = true;
      form.setAttribute("aria-busy", "true");
      send(form, form.querySelector("[data-waiting]")).catch(function () {
        form.submit(); // the browser says what is wrong
      });
    });
  });
})();
