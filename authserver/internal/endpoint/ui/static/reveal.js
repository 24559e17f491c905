// A button beside each password shows what was typed. A shown password is no ordinary text: it is not corrected, and it is
// hidden again when its form is sent or the page is left, so that the browser stores it nowhere.
document.querySelectorAll('input[type="password"]').forEach(function (field) {
  var button = document.createElement("input"); // programs press the first button element of a form
  var name = field.labels[0].textContent;
  button.type = "button";
  button.className = "button reveal";
  field.classList.add("revealed");
  field.spellcheck = false;
  field.autocapitalize = "none";
  field.setAttribute("autocorrect", "off");

  function show(shown) {
    field.type = shown ? "text" : "password";
    button.value = shown ? "Hide" : "Show";
    button.setAttribute("aria-label", button.value + ": " + name);
  }

  function hide() { show(false); }

  hide();
  button.addEventListener("click", function () { show(field.type === "password"); });
  field.form.addEventListener("submit", hide);
  window.addEventListener("pagehide", hide);
  field.after(button);
});

// The page for a forgotten password starts with the address that was typed on the sign-in page, and says where the link was
// sent.
(function () {
  var field = document.getElementById("email");
  var sent = document.querySelector("[data-address]");

  function stored(use) {
    try { return use(sessionStorage); } catch (denied) { return null; } // the browser stores nothing for this site
  }

  function keep() {
    if (field.value.includes("@")) {
      stored(function (storage) { storage.setItem("email", field.value); });
    }
  }

  function take() {
    return stored(function (storage) {
      var typed = storage.getItem("email");
      storage.removeItem("email");
      return typed;
    });
  }

  document.querySelectorAll('a[href="/login/forgotten"]').forEach(function (link) {
    if (field) { link.addEventListener("click", keep); }
  });
  if (sent) {
    sent.textContent = take() || sent.textContent;
  } else if (field && document.body.dataset.page === "forgotten") {
    field.value = field.value || take() || "";
    field.form.addEventListener("submit", keep);
  }
})();
