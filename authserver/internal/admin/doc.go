// Package admin answers: what may an operator do that no user can?
//
// The commands of authserver admin. Each takes what was typed, refuses what cannot be meant, and changes the store with
// an audit event of the actor admin in the same transaction. What is ended here is ended in Postgres; Redis is told as
// it can be, and nothing depends on that (package grant).
//
//	workspaces.go  organisations, tenants, their modules and features
//	users.go       people, and whether they may sign in
//	members.go     who works where, and what they may do there
//	clients.go     services, and the end of any client
//	grants.go      who is connected, and the end of that
//	policies.go    what connectors may be given in a workspace, at most
//	keys.go        signing keys (package keyring)
//	result.go      what a command says
//
// Callers: cmd/authserver (through app, which wires a Desk).
package admin
