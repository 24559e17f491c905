// Reports the browser's time zone to the sign-in forms, because mails write times in it. A script is the only way to know it.
document.cookie = "zone=" + Intl.DateTimeFormat().resolvedOptions().timeZone + "; path=/login; max-age=3600; samesite=lax" +
  (location.protocol === "https:" ? "; secure" : "");
