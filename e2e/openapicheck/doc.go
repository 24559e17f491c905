// Package openapicheck checks that the product's responses match its OpenAPI description.
//
// A Checker contains the description of the API (shared/openapi). It checks that the status of an exchange is
// described, that headers and body match their schemas, and that the description allows a request that succeeded. It
// records which responses have occurred, so that the missing ones can be listed at the end of a run.
//
// Schemas are validated with santhosh-tekuri/jsonschema, which supports JSON Schema 2020-12 as OpenAPI 3.1 uses it. The
// two Go libraries that validate whole exchanges were tried first: libopenapi-validator needs forks of modules that are
// not always available; kin-openapi does not check 304, HEAD and bodies that are not described, compiles each schema
// again for each response, and includes values, and so secrets, in its errors.
package openapicheck
