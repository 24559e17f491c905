// Package axe has the script of axe-core 4.14.1 (https://github.com/dequelabs/axe-core), which finds violations of
// accessibility rules in a page. axe.min.js is the file of that name in the npm package axe-core, unchanged; its
// licence is the Mozilla Public License 2.0 (LICENSE, LICENSE-3RD-PARTY.txt). Only tests use it: no program of the
// product contains it.
//
// To update it: npm pack axe-core, copy the three files, and change the version here.
package axe

import _ "embed" // for Script

// Script is the script. It defines axe in the page.
//
//go:embed axe.min.js
var Script string
