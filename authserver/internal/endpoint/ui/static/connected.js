// Connect an assistant: for ten minutes the page looks for a connection that the user has made, and says which. Without this
// file, the user finds it under Connected apps.
(function () {
  var note = document.querySelector("[data-watch]");
  var end = Date.now() + 600000;
  var delay = 3000;

  function wait() {
    if (Date.now() < end) { setTimeout(look, delay * (1 + Math.random() / 4)); }
  }

  function look() {
    if (document.hidden) { wait(); return; }
    fetch(note.dataset.watch, { redirect: "manual" }).then(function (answer) {
      if (answer.type === "opaqueredirect") { return; } // the user has signed out
      if (answer.status !== 200) {
        delay = answer.status === 204 ? 3000 : Math.min(2 * delay, 60000);
        wait();
        return;
      }
      answer.json().then(function (found) {
        note.firstElementChild.textContent = found.application + " is connected to " + found.workspace + ". ";
        note.className = "alert alert-good";
      });
    }, function () {
      delay = Math.min(2 * delay, 60000);
      wait();
    });
  }

  wait();
})();
