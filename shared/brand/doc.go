// Package brand has the name, the colour and the logo of a deployment, which its pages show.
//
// Both services embed Options in their configuration and call Read at startup. Pages use the colour of a deployment or
// a website only through Accent, which ensures enough contrast.
package brand
