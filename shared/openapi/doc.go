// Package openapi answers: what can be asked of the API, and what does it answer?
//
// The description of both services is written once, by hand, in parts/*.yaml: base.yaml holds what is common to all
// operations, every other part an area. New puts them together for one deployment. What holds:
//
//	O1  Every route of both services is described, and nothing else is (the services' own tests walk their routes).
//	O2  Every answer that the end-to-end tests see is described, and every answer described is seen by them (e2e).
//	O3  It is OpenAPI 3.1, and its examples are of the shapes that they stand beside (e2e).
//
// resourceapi serves it as JSON and as a page.
package openapi
