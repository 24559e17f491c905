package app_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	goredis "github.com/redis/go-redis/v9"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/store"
	"github.com/almonerhq/almoner/authserver/internal/store/postgres"
	"github.com/almonerhq/almoner/authserver/internal/store/redis"
	"github.com/almonerhq/almoner/authserver/internal/testing/apitest"
	"github.com/almonerhq/almoner/authserver/internal/testing/fixture"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/database/retention"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

const (
	connectorDay = 30
	keepDays     = 90 // of grants after their end, and of the audit log
	// flatFrom is the day after which as many records are deleted as added: the longest life of a grant plus keepDays.
	flatFrom = 90 + keepDays + 5
	// somePages is the growth of a small table that is no sign of one without end, in bytes.
	somePages = 16 * 8192
)

// A year is a simulated year. Its day is in the past, until the last one, which is today.
//
// The long form (make torture PART=year) has a year of 60 million grants at 1:1000, and watches the size of the tables.
// The short form has ten grants on every tenth day of 220, and counts their records.
type year struct {
	*fixture.Fixture
	t       *testing.T
	records *retention.Store
	rdb     goredis.UniversalClient
	grants  *redis.Grants
	user    uuid.UUID
	app     client.Client
	began   time.Time
	day     int
	days    int
	every   int // days between two days with grants
	daily   int // grants of such a day
	long    bool
}

func newYear(t *testing.T) *year {
	t.Helper()
	s := apitest.Own(t)
	y := &year{Fixture: s.Fixture, t: t, rdb: s.Parts.Redis, days: flatFrom + 35, every: 10, daily: 10}
	if os.Getenv("ALMONER_LONG") != "" {
		y.long, y.days, y.every, y.daily = true, 365, 1, 60_000/365+1
	}
	y.began = time.Now().AddDate(0, 0, -y.days)
	const day = 24 * time.Hour
	y.records = s.Store.Retention(postgres.RetentionPeriods{
		postgres.SettingAuditEvents:   keepDays * day,
		postgres.SettingGrants:        keepDays * day,
		postgres.SettingTokens:        keepDays * day,
		postgres.SettingClients:       keepDays * day,
		postgres.SettingKeys:          120 * day,
		postgres.SettingInvitations:   keepDays * day,
		postgres.SettingConnectionLog: keepDays * day,
	}).At(y.now)
	y.grants = redis.NewGrants(y.rdb)
	y.user = y.Member(perm.ProgrammesRead)
	y.app = y.Connector("https://api.example.org/v1", perm.ProgrammesRead)
	return y
}

func (y *year) now() time.Time { return y.began.AddDate(0, 0, y.day) }

// addDay adds what a day leaves in Postgres: grants with three refreshes, of which a tenth is revoked and half live
// for 90 days, their audit events and events, and the other records.
func (y *year) addDay() {
	y.t.Helper()
	for _, sql := range []string{
		`insert into account.grants (id, kind, client_id, user_id, tenant_id, permissions, resource, state,
			code_binding, created_at, ends_at)
		select gen_random_uuid(), 'connector', $2, $3, $4, '{programmes:read:programmes}', 'https://api.example.org/v1',
			'pending', sha256('x'), $1,
			$1::timestamptz + make_interval(days => case when n % 2 = 0 then 30 else 90 end)
		from generate_series(1, $5) n`,
		`update account.grants set state = 'active', generation = 1, refresh_hash = sha256('1')
		where created_at = $1 and client_id = $2 and user_id = $3 and tenant_id = $4 and $5 > 0`,
		refreshed, refreshed, refreshed,
		`update account.grants set state = 'revoked', revoked_at = $1, revoke_reason = 'user'
		where created_at = $1 and client_id = $2 and user_id = $3 and tenant_id = $4 and $5 > 0
			and get_byte(uuid_send(id), 0) < 26`,
		`insert into account.audit_events (id, at, tenant_id, user_id, actor, action, subject, detail)
		select gen_random_uuid(), $1, $4, $3, 'user:' || $3::uuid, '` + audit.GrantConsented + `', 'grant:' || id,
			jsonb_build_object('client_id', $2::uuid, 'permissions', permissions)
		from account.grants where created_at = $1 and $5 > 0`,
		`update account.events set created_at = $1
		where created_at > now() - interval '1 minute' and $2::uuid <> $3::uuid and tenant_id = $4 and $5 > 0`,
		`insert into account.personal_access_tokens (id, hash, user_id, tenant_id, name, permissions, created_at,
			expires_at)
		select gen_random_uuid(), sha256(gen_random_uuid()::text::bytea), $3, $4, 'x', '{}', $1,
			$1::timestamptz + interval '30 days'
		from generate_series(1, $5 / 10) n where $2::uuid is not null`,
		`insert into account.sign_ins (id, user_id, created_at, expires_at, method, address, user_agent)
		select gen_random_uuid(), $3, $1, $1::timestamptz + interval '1 day', 'password', '', ''
		from generate_series(1, $5 / 5) n where $2::uuid <> $4::uuid`,
		`insert into account.sessions (token, data, expiry)
		select gen_random_uuid()::text, decode(repeat('00', 200), 'hex'), $1::timestamptz + interval '12 hours'
		from generate_series(1, $5) n where $2::uuid <> $3::uuid and $4::uuid is not null`,
	} {
		y.Exec(sql, y.now(), y.app.ID, y.user, y.WorkspaceID, y.daily)
	}
}

// refreshed is a refresh of each of the day's grants.
const refreshed = `update account.grants set generation = generation + 1, refresh_hash = sha256(generation::text::bytea)
	where created_at = $1 and client_id = $2 and user_id = $3 and tenant_id = $4 and $5 > 0`

// redeemDay makes the day's grants in Redis, half of which live for 90 days.
func (y *year) redeemDay() {
	y.t.Helper()
	var callers sync.WaitGroup
	jobs := make(chan int)
	for range 4 {
		callers.Go(func() {
			for n := range jobs {
				life := connectorDay
				if n%2 == 1 {
					life = 90
				}
				err := y.redeem(time.Now().AddDate(0, 0, life))
				// A busy machine may keep Redis from answering in time.
				for range 50 {
					if !errors.Is(err, store.ErrUnavailable) {
						break
					}
					time.Sleep(100 * time.Millisecond)
					err = y.redeem(time.Now().AddDate(0, 0, life))
				}
				if err != nil {
					y.t.Error(err)
				}
			}
		})
	}
	for n := range y.daily {
		jobs <- n
	}
	close(jobs)
	callers.Wait()
}

// redeem makes a grant in Redis.
func (y *year) redeem(ends time.Time) error {
	ctx, cancel := context.WithTimeout(y.t.Context(), testkit.StoreWait)
	defer cancel()
	id := uuid.New()
	terms := grant.CodeTerms{ClientID: y.app.ID, RedirectURI: "https://x.example", Resource: y.app.Resource}
	code := make([]byte, 32)
	if result, err := y.grants.Issue(ctx, id, 1, code, terms, ends); err != nil || result != grant.OK {
		return fmt.Errorf("issue: %s %w", result, err)
	}
	step := grant.Step{GrantID: id, Nonce: id.String()[:16]}
	request := grant.Request{Token: grant.Token{GrantID: id, Hash: code}, Terms: terms}
	if result, err := y.grants.Decide(ctx, step, request, [][]byte{code}); err != nil || result != grant.OK {
		return fmt.Errorf("exchange: %s %w", result, err)
	}
	return nil
}

// passDays takes days off the time to live of every key of Redis. A key without one is an error.
func (y *year) passDays(days int) {
	y.t.Helper()
	forever, err := goredis.NewScript(`
		local forever = 0
		for _, key in ipairs(redis.call('keys', '*')) do
			local left = redis.call('pttl', key)
			if left < 0 then forever = forever + 1 end
			redis.call('pexpire', key, left - ARGV[1] * 86400000)
		end
		return forever`).Run(y.t.Context(), y.rdb, nil, days).Int()
	if err != nil || forever > 0 {
		y.t.Errorf("%d keys without end: %v", forever, err)
	}
}

func yearTables() []string {
	return []string{"grants", "audit_events", "events", "personal_access_tokens", "sign_ins", "sessions"}
}

// sizes returns the rows and the bytes, with indexes, of each table.
func (y *year) sizes() (rows, bytes map[string]int) {
	y.t.Helper()
	rows, bytes = map[string]int{}, map[string]int{}
	for _, table := range yearTables() {
		var n, size int
		name := "account." + table
		text := fmt.Sprintf(`select count(*), (select coalesce(sum(pg_total_relation_size(relid)),
			pg_total_relation_size('%[1]s')) from pg_partition_tree('%[1]s')) from %[1]s`, name)
		if err := y.Owner.QueryRow(y.t.Context(), text).Scan(&n, &size); err != nil {
			y.t.Fatal(err)
		}
		rows[table], bytes[table] = n, size
	}
	return rows, bytes
}

// Tables and Redis do not grow in a year of grants, once as many grants end as begin.
func TestRetention_YearOfGrantsStaysFlat(t *testing.T) {
	t.Parallel()
	y := newYear(t)
	// Autovacuum runs once a minute, which is many simulated days.
	vacuum := func() {
		for _, table := range yearTables() {
			y.Exec("vacuum account." + table)
		}
	}
	var flat map[string]int
	for y.day = y.every; y.day <= y.days; y.day += y.every {
		y.addDay()
		y.redeemDay()
		_, err := y.records.DeleteAll(t.Context())
		testkit.Must(t, err)
		if y.day%5 == 0 {
			y.passDays(max(5, y.every))
		}
		if y.long && y.day%5 == 0 {
			vacuum()
		}
		if y.day == flatFrom {
			_, flat = y.sizes()
		}
	}
	rows, bytes := y.sizes()
	more := 1
	if y.long {
		more = 2
	}
	within := func(days int) int { return days/y.every + more } // the days with grants among so many
	for table, most := range map[string]int{
		"grants":                 y.daily*within(keepDays) + y.daily/2*30/y.every + (y.daily+1)/2*90/y.every,
		"audit_events":           y.daily * within(keepDays),
		"events":                 y.daily * 2 * within(30),
		"personal_access_tokens": y.daily / 10 * within(keepDays+30),
		"sign_ins":               y.daily / 5 * within(90+1),
		"sessions":               y.daily * 2,
	} {
		if rows[table] > most || rows[table] == 0 {
			t.Errorf("%s: %d rows, want at most %d", table, rows[table], most)
		}
		// Adding an event deletes those that are 30 days old today, which are nearly all until the last month.
		if y.long && bytes[table] > flat[table]*5/4+somePages && table != "events" {
			t.Errorf("%s: %d bytes, and %d on day %d", table, bytes[table], flat[table], flatFrom)
		}
		t.Logf("%s: %d rows, %d bytes, %d on day %d", table, rows[table], bytes[table], flat[table], flatFrom)
	}
	keys, err := y.rdb.DBSize(t.Context()).Result()
	if most := int64(y.daily * within((30+90)/2+5)); err != nil || keys > most || keys == 0 {
		t.Errorf("%d keys in Redis, want at most %d: %v", keys, most, err)
	}
	t.Logf("%d keys in Redis", keys)
}
