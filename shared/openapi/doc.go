// Package openapi builds the OpenAPI description of both services.
//
// The description is written by hand in parts/*.yaml. base.yaml contains the common parts of all operations. Each other
// file describes one area: the service that has its routes, its position in the document, its tags, paths and
// components. New combines the files for one deployment. Invariants:
//
//	O1  Every route of both services is described, and no other (the services' tests check their routes).
//	O2  The end-to-end tests receive only described responses, and every described response (e2e).
//	O3  It is OpenAPI 3.1, and its examples match their schemas (e2e).
//
// resourceapi serves it as JSON and as a page.
package openapi
