// Package admin implements the commands of authserver admin, which operators use.
//
// Each command parses its arguments, refuses invalid ones, and changes the store with an audit event of the actor admin
// in the same transaction. Revocations are committed in Postgres and then propagated to Redis; a failure to propagate
// does not matter (package grant).
//
//	workspaces.go  organisations, workspaces, their modules and features
//	users.go       users and passwords
//	deletion.go    deletion of users
//	email.go       the e-mail address of a user
//	signin.go      passkeys and linked accounts of users
//	members.go     memberships and permissions
//	managers.go    who manages members, after an upgrade
//	clients.go     clients and services
//	clientspec.go  the description of a client
//	apply.go       clients from a YAML file
//	grants.go      grants and their revocation
//	policies.go    connector policies of workspaces
//	retention.go   deletion of old records
//	keys.go        signing keys (package keyring)
//	result.go      output of a command
//	times.go       times in JSON
//
// cmd/authserver uses it through package app, which creates the Service.
package admin
