// Package redis answers: who was first?
//
// It keeps the fast half of each grant (grant.Register) as one hash under one key, and every decision is one Lua script
// on that key, so that it runs on Redis Cluster as it is. Nothing depends on Redis keeping its memory: Postgres is the
// fence. An answer says which question it is the answer to (script.go): one from a connection that is out of step
// decides nothing. KEYS.md lists every key, its fields and its time to live.
package redis
