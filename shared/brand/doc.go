// Package brand has the name, the colour and the logo of a deployment, which its pages show.
//
// Both services embed Options in their configuration and call Read at startup. Colours that a deployment or a website
// chooses are used only after Accent has given them enough contrast.
package brand
