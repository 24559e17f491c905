package postgres

import (
	"time"

	"github.com/almonerhq/almoner/shared/contract/webhook"
	"github.com/almonerhq/almoner/shared/database/retention"
)

// Names of the settings of the periods of Retention.
const (
	ImportsSetting    = "ALMONER_RETENTION_IMPORTS_DAYS"
	SupportersSetting = "ALMONER_RETENTION_SUPPORTERS_DAYS"
)

// Retention returns the store that deletes the records of the resource schema that are no longer needed. keepImports is
// how long imports are kept after they have ended, and keepSupporters how long supporters are kept after their last
// submission was deleted. Zero keeps them for ever.
func (s *Store) Retention(keepImports, keepSupporters time.Duration) *retention.Store {
	return retention.NewStore(s.pool.Pool, "resource", []retention.Kind{
		oldSubmissions(),
		supportersLeft().Configured("supporters without submissions", SupportersSetting, keepSupporters),
		retention.RowsOf("resource.imports", "tenant_id, id", "t.finished_at", "").
			Configured("finished imports", ImportsSetting, keepImports),
		answers.Kind(),
		retention.RowsOf("account.webhook_deliveries", "tenant_id, id", "t.created_at", "").
			Fixed("deliveries of webhooks", retention.Days(webhook.LogDays)),
		formerSecrets(),
		retention.RowsOfWorkspaces("resource.erasures", "tenant_id, id", "t.finished_at", "").
			Fixed("finished erasures", keepErasures),
	})
}

// formerSecrets returns the kind of replaced webhook secrets with which events are no longer signed. They are cleared;
// the endpoint stays.
func formerSecrets() retention.Kind {
	const due = "from account.webhooks w where w.former_until < $1"
	return retention.Kind{
		Name: "replaced webhook secrets",
		Due:  "select w.former_until as at " + due + " order by 1",
		Delete: `
			with due as materialized (
				select w.tenant_id, w.id ` + due + ` order by w.former_until limit $2 for update skip locked
			), cleared as (
				update account.webhooks w set former_secret = null, former_secret_key = null, former_until = null
				from due where w.tenant_id = due.tenant_id and w.id = due.id returning 1)
			select count(*) from cleared`,
	}
}

// oldSubmissions returns the kind of submissions. It reads each form's list from its oldest submission on, so that it
// reads only what it deletes, and only in the months between the oldest and the newest of them. Functions add the
// months and drop those in which no submission is left, since this role does not own the table.
func oldSubmissions() retention.Kind {
	const old = `s.tenant_id = f.tenant_id and s.form_id = f.id
		and s.created_at < $1::timestamptz - make_interval(months => f.retention_months)`
	return retention.Kind{
		Name:       "submissions",
		Rule:       "retentionMonths of the form",
		Due:        `select s.created_at as at from resource.forms f join resource.submissions s on ` + old,
		Workspaces: "select distinct tenant_id from resource.forms",
		Prepare:    "select resource.make_submission_months()",
		Drop:       "select resource.drop_submission_month($1)",
		Delete: `
			with due as materialized (
				select d.id, d.created_at from resource.forms f
				cross join lateral (
					select s.id, s.created_at from resource.submissions s where s.tenant_id = $3 and ` + old + `
					order by s.created_at, s.id limit $2 for update skip locked
				) d where f.tenant_id = $3 limit $2
			), gone as (
				delete from resource.submissions s where s.tenant_id = $3 and s.id = any (array(select id from due))
					and s.created_at between (select min(created_at) from due) and (select max(created_at) from due)
				returning 1)
			select count(*) from gone`,
	}
}

// supportersLeft returns the kind of supporters whose last submission was deleted. Supporters that have sent another
// submission since then stay; only the note in supporters_left is deleted.
func supportersLeft() retention.Kind {
	const (
		sent = `exists (select from resource.submissions s
			where s.tenant_id = t.tenant_id and s.supporter_id = t.supporter_id)`
		due = "from resource.supporters_left t where t.since < $1 and not " + sent
	)
	return retention.Kind{
		Due:        "select t.since as at " + due + " order by 1",
		Workspaces: "select distinct t.tenant_id from resource.supporters_left t where t.since < $1",
		Delete: `
			with due as materialized (
				select p.id from resource.supporters p
				where p.tenant_id = $3
					and p.id in (select t.supporter_id ` + due + ` and t.tenant_id = $3 order by t.since limit $2)
				for update skip locked
			), returned as (
				delete from resource.supporters_left where tenant_id = $3 and supporter_id in (
					select t.supporter_id from resource.supporters_left t
					where t.tenant_id = $3 and t.since < $1 and ` + sent + `
					limit $2 for update skip locked)
			), gone as (
				delete from resource.supporters p using due where p.tenant_id = $3 and p.id = due.id returning 1)
			select count(*) from gone`,
	}
}
