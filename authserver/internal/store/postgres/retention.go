package postgres

import (
	"time"

	"github.com/almonerhq/almoner/authserver/internal/account/accessrequest"
	"github.com/almonerhq/almoner/shared/retention"
)

// Keep is how long records are kept after they have ended. Zero keeps them for ever.
type Keep struct {
	AuditEvents   time.Duration
	Grants        time.Duration // after the end of their life, so that a superseded token is recognised until then (G3)
	Tokens        time.Duration
	Clients       time.Duration
	Keys          time.Duration // longer than an access token lives
	Invitations   time.Duration
	ConnectionLog time.Duration
}

// Names of the settings of Keep.
const (
	KeepAuditEvents   = "ALMONER_RETENTION_AUDIT_DAYS"
	KeepGrants        = "ALMONER_RETENTION_GRANTS_DAYS"
	KeepTokens        = "ALMONER_RETENTION_TOKENS_DAYS"
	KeepClients       = "ALMONER_RETENTION_CLIENTS_DAYS"
	KeepKeys          = "ALMONER_RETENTION_KEYS_DAYS"
	KeepInvitations   = "ALMONER_RETENTION_INVITATIONS_DAYS"
	KeepConnectionLog = "ALMONER_RETENTION_CONNECTION_LOG_DAYS"
)

const day = 24 * time.Hour

// Times that the contract fixes, or that no deployment needs to change.
const (
	keepEvents   = 30 * day // contract, section 6a
	keepRequests = accessrequest.Kept
	keepChanges  = day      // they name addresses
	keepSignIns  = 90 * day // for the security page
	keepMailJobs = 7 * day  // as River keeps discarded jobs
)

// Retention returns the store that deletes the records of the account schema that are no longer needed.
func (s *Store) Retention(keep Keep) *retention.Store {
	return retention.NewStore(s.pool, "account", []retention.Kind{
		kept("audit events", KeepAuditEvents, keep.AuditEvents, auditEvents()),
		kept("ended grants", KeepGrants, keep.Grants, retention.RowsOf("account.grants", "id", "t.ends_at", "")),
		kept("expired personal access tokens", KeepTokens, keep.Tokens, personalAccessTokens()),
		kept("deleted clients", KeepClients, keep.Clients, deletedClients()),
		kept("removed signing keys", KeepKeys, keep.Keys,
			retention.RowsOf("account.signing_keys", "kid", "t.removed_at", "t.state = 'removed'")),
		kept("ended invitations", KeepInvitations, keep.Invitations,
			retention.RowsOf("account.invitations", "id", "coalesce(t.ended_at, t.expires_at)", "")),
		kept("connection log", KeepConnectionLog, keep.ConnectionLog,
			retention.RowsOf("account.connection_stops", "id", "t.at", "")),
		fixed("events", keepEvents, events()),
		fixed("expired sessions", 0, retention.RowsOf("account.sessions", "token", "t.expiry", "")),
		fixed("ended sign-ins", keepSignIns, retention.RowsOf("account.sign_ins", "id", "t.expires_at", "")),
		fixed("expired sign-in states", 0, retention.RowsOf("account.ceremonies", "secret_hash", "t.expires_at", "")),
		fixed("password resets", keepResets,
			retention.RowsOf("account.password_resets", "token_hash", "t.expires_at", "")),
		fixed("requests for access", keepRequests,
			retention.RowsOf("account.access_requests", "user_id, tenant_id", "t.asked_at", "")),
		fixed("changes of e-mail addresses", keepChanges,
			retention.RowsOf("account.email_changes", "id", "t.expires_at", "")),
		fixed("finished mail jobs", keepMailJobs, retention.RowsOf("account_jobs.river_job", "id", "t.finalized_at",
			"t.state in ('completed', 'cancelled', 'discarded')")),
	})
}

// kept completes a kind whose time is a setting.
func kept(name, setting string, keep time.Duration, k retention.Kind) retention.Kind {
	k.Name, k.Setting, k.Keep, k.Forever = name, setting, keep, keep == 0
	return k
}

// fixed completes a kind whose time does not change.
func fixed(name string, keep time.Duration, k retention.Kind) retention.Kind {
	k.Name, k.Keep = name, keep
	return k
}

// auditEvents are deleted by a function, since this role may only append to the audit log.
func auditEvents() retention.Kind {
	return retention.Kind{
		Due:    "select at from account.audit_events where at < $1 order by at",
		Delete: "select account.delete_audit_events($1, $2)",
	}
}

func events() retention.Kind {
	return retention.Kind{
		Due:    "select created_at as at from account.events where created_at < $1 order by created_at",
		Delete: "select account.delete_events($1, $2)",
	}
}

// personalAccessTokens are deleted from the oldest of a chain of replaced tokens on: a token whose predecessor is
// stored stays, since its successor ends both at its first use. The successor of a deleted one replaces nothing.
func personalAccessTokens() retention.Kind {
	const due = "from account.personal_access_tokens t where t.expires_at < $1 and t.replaces_id is null"
	return retention.Kind{
		Due: "select t.expires_at as at " + due + " order by 1",
		Delete: `
			with due as materialized (
				select t.id ` + due + ` order by t.expires_at limit $2 for update skip locked
			), successors as (
				update account.personal_access_tokens t set replaces_id = null from due where t.replaces_id = due.id
			), gone as (
				delete from account.personal_access_tokens t using due where t.id = due.id returning 1)
			select count(*) from gone`,
	}
}

// deletedClients are deleted after all their grants.
func deletedClients() retention.Kind {
	const due = `from account.oauth_clients t where t.deleted_at < $1
		and not exists (select from account.grants g where g.client_id = t.id)`
	return retention.Kind{
		Due: "select t.deleted_at as at " + due + " order by 1",
		Delete: `
			with due as materialized (
				select t.id ` + due + ` order by t.deleted_at limit $2 for update skip locked
			), secrets as (
				delete from account.client_secrets s using due where s.client_id = due.id
			), stops as (
				delete from account.connection_stops s using due where s.client_id = due.id
			), gone as (
				delete from account.oauth_clients t using due where t.id = due.id returning 1)
			select count(*) from gone`,
	}
}
