// Package spelling decides when two texts that people type are the same address, password, code or phone number
// (contract, section 5). Keyboards, browsers and address books send one text in several spellings: Unicode has more
// than one form of most letters with marks, Chromium sends the domain of an address in Punycode, and copied text has
// invisible characters.
//
//	email.go     Email, Claimed, Key, Spellings, OnWire: addresses of e-mail; Search, Fold
//	password.go  Password
//	pasted.go    Pasted, Code, Phone: text that people paste
//
// Every entrance of both services uses it: pages, API, public forms, erasure, upstream OpenID Connect, the operator's
// commands, and the keys of limits. The test in e2e/entrances lists the entrances and fails on a new one. Which names
// people may have is decided in displayname.
package spelling
