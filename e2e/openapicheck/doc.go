// Package openapicheck answers: is what the product answers what it says that it answers?
//
// A Book holds the description of the API (shared/openapi) and judges exchanges by it: the status is described, and
// headers and body are of the shapes described; a request that had success is one that the description would let
// through. It keeps which answers have occurred, so that at the end of a run those that have not can be named.
//
// Schemas are validated by santhosh-tekuri/jsonschema, which knows JSON Schema 2020-12 as OpenAPI 3.1 has it. The two
// validators of whole exchanges that there are for Go were tried first: libopenapi-validator needs forks of modules
// that cannot be had everywhere; kin-openapi leaves 304, HEAD and bodies where none is described unjudged, compiles
// each schema anew for each answer, and quotes values, secrets too, in its errors.
package openapicheck
