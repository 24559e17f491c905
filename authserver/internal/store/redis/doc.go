// Package redis stores the short-lived state of authserver that decides races.
//
// It stores the fast half of each grant (grant.RotationStore) as one hash under one key. Every decision is
// one Lua script on that key, so it also runs on Redis Cluster. Nothing depends on Redis keeping its data:
// the conditional updates in Postgres are authoritative. A response names the command that it belongs to
// (script.go): a response from a connection that is out of step decides nothing. KEYS.md lists every key, its
// fields and its time to live.
package redis
