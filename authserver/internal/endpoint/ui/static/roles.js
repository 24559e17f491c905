// Roles: one that is chosen ticks its boxes, and boxes ticked by hand choose the role that they make up, or Custom, the last
// one. Without this file, the server gives the permissions of the chosen role.
(function () {
  var roles = Array.from(document.querySelectorAll("input[name=preset]"));
  var boxes = Array.from(document.querySelectorAll("input[name=permissions]"));

  function fits(role) {
    return role.value === "custom" || boxes.every(function (box) {
      return box.checked === role.dataset.permissions.split(" ").includes(box.value);
    });
  }

  roles.forEach(function (role) {
    role.addEventListener("change", function () {
      boxes.forEach(function (box) {
        box.checked = role.value === "custom" ? box.checked
          : role.dataset.permissions.split(" ").includes(box.value);
      });
    });
  });
  boxes.forEach(function (box) {
    box.addEventListener("change", function () {
      var role = roles.find(fits);
      if (role) { role.checked = true; }
    });
  });
})();
