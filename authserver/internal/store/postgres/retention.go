package postgres

import (
	"strings"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/account/membership"
	"github.com/almonerhq/almoner/authserver/internal/account/usage"
	"github.com/almonerhq/almoner/shared/database/retention"
	"github.com/almonerhq/almoner/shared/rest"
)

// RetentionPeriods say how long records are kept after they have ended, by the names of the settings. Zero, or a
// missing one, keeps them for ever.
type RetentionPeriods map[string]time.Duration

// Names of the settings of RetentionPeriods.
const (
	SettingAuditEvents   = "ALMONER_RETENTION_AUDIT_DAYS"
	SettingGrants        = "ALMONER_RETENTION_GRANTS_DAYS" // after their life; until then G3 knows superseded tokens
	SettingTokens        = "ALMONER_RETENTION_TOKENS_DAYS"
	SettingClients       = "ALMONER_RETENTION_CLIENTS_DAYS"
	SettingKeys          = "ALMONER_RETENTION_KEYS_DAYS" // longer than an access token lives
	SettingInvitations   = "ALMONER_RETENTION_INVITATIONS_DAYS"
	SettingConnectionLog = "ALMONER_RETENTION_CONNECTION_LOG_DAYS"
)

const day = 24 * time.Hour

// Periods that the contract prescribes, or that no deployment needs to change.
const (
	keepEvents   = 30 * day // contract, section 6a
	keepRequests = membership.RequestsKept
	keepChanges  = day              // they name addresses
	keepSignIns  = 90 * day         // for the security page
	keepMailJobs = 7 * day          // as River keeps discarded jobs
	keepUsage    = usage.Kept + day // after the beginning of its day
)

// Retention returns the store that deletes the records of the account schema that are no longer needed.
func (d *db) Retention(periods RetentionPeriods) *retention.Store {
	return retention.NewStore(d.pool, "account", []retention.Kind{
		// Functions add the months and delete audit events, since this role may only append events. A month is dropped
		// when all its events are due.
		retention.Kind{
			Prepare: "select account.make_audit_months()",
			Due:     "select at from account.audit_events where at < account.audit_events_due($1) order by at",
			Drop:    "select account.drop_audit_month($1)",
			Delete:  "select account.delete_audit_events($1, $2)",
		}.Configured("audit events", SettingAuditEvents, periods[SettingAuditEvents]),
		// Functions delete grants and entries of the connection log, workspace by workspace.
		retention.Kind{
			Due:    "select t.ends_at as at from account.grants t where t.ends_at < $1 order by 1",
			Delete: "select account.delete_grants($1, $2)",
		}.Configured("ended grants", SettingGrants, periods[SettingGrants]),
		personalAccessTokens.Configured("expired personal access tokens", SettingTokens, periods[SettingTokens]),
		deletedClients.Configured("deleted clients", SettingClients, periods[SettingClients]),
		retention.RowsOf("account.signing_keys", "kid", "t.removed_at", "t.state = 'removed'").
			Configured("removed signing keys", SettingKeys, periods[SettingKeys]),
		retention.RowsOf("account.invitations", "tenant_id, id", "coalesce(t.ended_at, t.expires_at)", "").
			Configured("ended invitations", SettingInvitations, periods[SettingInvitations]),
		retention.Kind{
			Due:    "select t.at from account.connection_stops t where t.at < $1 order by 1",
			Delete: "select account.delete_connection_stops($1, $2)",
		}.Configured("connection log", SettingConnectionLog, periods[SettingConnectionLog]),
		events.Fixed("events", keepEvents),
		retention.RowsOfWorkspaces("account.usage", usageKey, "t.day", "").Fixed("usage of credentials", keepUsage),
		ofDeletedUsers("account.usage", usageKey).Fixed("usage of deleted users", 0),
		retention.RowsOf("account.usage_writers", "id", "t.written_at", "").Fixed("writers of usage", day),
		rest.AnswerTable{Name: answersTable}.Kind(),
		retention.RowsOf("account.sessions", "token", "t.expiry", "").Fixed("expired sessions", 0),
		retention.RowsOf("account.sign_ins", "id", "t.expires_at", "").Fixed("ended sign-ins", keepSignIns),
		retention.RowsOf("account.ceremonies", "secret_hash", "t.expires_at", "").Fixed("expired sign-in states", 0),
		retention.RowsOf("account.password_resets", "token_hash", "t.expires_at", "").
			Fixed("password resets", keepResets),
		retention.RowsOf("account.access_requests", "user_id, tenant_id", "t.asked_at", "").
			Fixed("requests for access", keepRequests),
		retention.RowsOf("account.email_changes", "id", "t.expires_at", "").
			Fixed("changes of e-mail addresses", keepChanges),
		retention.RowsOfWorkspaces("account.credential_networks", networkKey, "t.last_used_at", "").
			Fixed("networks of credentials", usage.Kept),
		ofDeletedUsers("account.credential_networks", networkKey).Fixed("networks of deleted users", 0),
		retention.RowsOf("account_jobs.river_job", "id", "t.finalized_at",
			"t.state in ('completed', 'cancelled', 'discarded')").Fixed("finished mail jobs", keepMailJobs),
	})
}

// The months of events are added and dropped in the same way as those of the audit log.
var events = retention.Kind{
	Prepare: "select account.make_event_months()",
	Due:     "select created_at as at from account.events where created_at < account.events_due($1) order by 1",
	Drop:    "select account.drop_event_month($1)",
	Delete:  "select account.delete_events($1, $2)",
}

// Key columns.
const (
	usageKey   = "tenant_id, credential_id, day, operation, service_id"
	networkKey = "tenant_id, credential_id, network"
)

// ofDeletedUsers deletes the rows of a table of credentials, with these key columns, that belong to deleted users: what
// was too much to delete with the account, and what a process has added since.
func ofDeletedUsers(table, key string) retention.Kind {
	due := "from account.users u join " + table + " t on t.user_id = u.id where u.deleted_at < $1"
	same := ""
	for column := range strings.SplitSeq(key, ", ") {
		same += " and t." + column + " = due." + column
	}
	return retention.Kind{
		Due:        "select u.deleted_at as at " + due + " order by 1",
		Workspaces: "select distinct t.tenant_id " + due,
		Delete: `
with due as materialized (
  select ` + key + ` ` + due + ` and t.tenant_id = $3 limit $2 for update of t skip locked
), gone as (
  delete from ` + table + ` t using due where t.tenant_id = $3` + same + ` returning 1)
select count(*) from gone`,
	}
}

// In a chain of replaced tokens, the oldest is deleted first: a token stays while its predecessor is stored, because
// the first use of its successor revokes both. The successor of a deleted token no longer names a predecessor.
var personalAccessTokens = retention.Kind{Due: "select t.expires_at as at " + dueTokens + " order by 1", Delete: `
	with due as materialized (
		select t.id ` + dueTokens + ` order by t.expires_at limit $2 for update skip locked
	), successors as (
		update account.personal_access_tokens t set replaces_id = null from due where t.replaces_id = due.id
	), gone as (
		delete from account.personal_access_tokens t using due where t.id = due.id returning 1)
	select count(*) from gone`}

const dueTokens = "from account.personal_access_tokens t where t.expires_at < $1 and t.replaces_id is null"

// A client is deleted after all its grants.
var deletedClients = retention.Kind{
	Due: `select t.deleted_at as at from account.oauth_clients t where t.deleted_at < $1 and t.id not in (
		select g.client_id from account.grants g
		where g.client_id in (select c.id from account.oauth_clients c where c.deleted_at < $1)) order by 1`,
	Delete: "select account.delete_clients($1, $2)",
}
