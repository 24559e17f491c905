package bench

import (
	"bufio"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/deploy/local/stack"
	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/crypt/seal"
	"github.com/almonerhq/almoner/shared/devkit/localstore"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

// A scale is the number of rows of each kind. rows are those of each other kind that is listed, searched or worked on.
type scale struct{ grants, programmes, workspaces, rows int }

func (s scale) String() string {
	return fmt.Sprintf("%d grants, %d programmes and %d of each other kind in the workspace, %d workspaces", s.grants,
		s.programmes, s.rows, s.workspaces)
}

// A seededStack is a stack with seeded data. Its grants are in the state after two refreshes: in Redis by the product's
// own scripts, in Postgres by COPY. A grant's ID, owner and refresh token are derived from its number.
type seededStack struct {
	scale
	*bench
	running *stack.Stack
	key     []byte // key of the grants' tokens

	grantBytesRedis, grantBytesPostgres, auditBytes float64 // bytes of one row, indexes included

	of        sync.Mutex
	refreshed map[int]string // refresh tokens by grant number
}

// callback is the redirect URI of the seeded connectors, as long as a real one.
const callback = "https://claude.ai/api/mcp/auth_callback"

func id(kind string, number int) uuid.UUID {
	sum := sha256.Sum256([]byte(kind + " " + strconv.Itoa(number)))
	made := uuid.UUID(sum[:16])
	made[6], made[8] = made[6]&0x0f|0x40, made[8]&0x3f|0x80 // version 4
	return made
}

func (e *seededStack) workspace(grant int) int { return grant % e.workspaces }

func (e *seededStack) resource() string { return e.running.BaseURL + "/v1" }

// secret returns the random part of a grant's token of a generation; generation 0 is its code.
func secret(grant, generation int) [32]byte {
	return sha256.Sum256(fmt.Appendf(nil, "secret %d %d", grant, generation))
}

func hash(grant, generation int) string {
	random := secret(grant, generation)
	sum := sha256.Sum256(random[:])
	return string(sum[:])
}

// seededGeneration is the generation of the seeded refresh tokens.
const seededGeneration = 2

// refreshToken returns a grant's seeded refresh token, built as authserver builds it (package grant).
func (e *seededStack) refreshToken(grant int) string {
	name, random := id("grant", grant), secret(grant, seededGeneration)
	body := append(binary.BigEndian.AppendUint32(name[:], seededGeneration), random[:]...)
	mac := hmac.New(sha256.New, e.key)
	mac.Write([]byte("alm_rt_"))
	mac.Write(body)
	return "alm_rt_" + base64.RawURLEncoding.EncodeToString(mac.Sum(body))
}

// newSeededStack seeds a stack.
func newSeededStack(t *testing.T, b *bench, running *stack.Stack, s scale) *seededStack {
	t.Helper()
	e := &seededStack{scale: s, bench: b, running: running, refreshed: map[int]string{}, key: tokenKey(t, running)}
	ctx := context.WithoutCancel(t.Context())
	db := testkit.Connect(t, running.DatabaseURL)
	redis, err := dialRedis(running.RedisURL)
	must(t, err)
	defer func() { _ = redis.connection.Close() }()
	must(t, e.seedWorkspaces(ctx, db))
	before := e.size(ctx, t, db, "account.grants")
	var group sync.WaitGroup
	var inRedis error
	group.Go(func() { inRedis = e.seedRedis(redis) })
	must(t, e.seedGrants(ctx, db))
	e.grantBytesPostgres = (e.size(ctx, t, db, "account.grants") - before) / float64(s.grants)
	must(t, e.seedProgrammes(ctx, db))
	before = e.size(ctx, t, db, "account.audit_events")
	audited, err := e.seedAudit(ctx, db)
	must(t, err)
	e.auditBytes = (e.size(ctx, t, db, "account.audit_events") - before) / float64(audited)
	e.seedRows(ctx, t)
	group.Wait()
	must(t, inRedis)
	e.settle(ctx, t)
	return e
}

var must = testkit.Must

// tokenKey returns the key with which the stack's authserver makes tokens.
func tokenKey(t *testing.T, running *stack.Stack) []byte {
	t.Helper()
	content, err := os.ReadFile(running.AdminFile())
	must(t, err)
	_, rest, _ := strings.Cut(string(content), "ALMONER_KEYS='")
	text, _, _ := strings.Cut(rest, "'")
	keys, err := seal.ParseKeys(credential.Secret(text))
	must(t, err)
	derived, err := seal.Derive(keys, seal.Purposes("grant tokens"))
	must(t, err)
	return derived.Now()[0][0]
}

// size returns the size of a table with its indexes, in bytes.
func (e *seededStack) size(ctx context.Context, t *testing.T, db *pgx.Conn, table string) float64 {
	t.Helper()
	var size float64
	must(t, db.QueryRow(ctx, `select (pg_total_relation_size($1::text::regclass) + coalesce((
		select sum(pg_total_relation_size(relid)) from pg_partition_tree($1::text::regclass)), 0))::float8`,
		table).Scan(&size))
	return size
}

// settle makes Postgres vacuum and checkpoint now, so that it does not do so during the measurement.
func (e *seededStack) settle(ctx context.Context, t *testing.T) {
	t.Helper()
	db := e.superuser(t)
	for _, statement := range []string{"vacuum (analyze)", "checkpoint"} {
		_, err := db.Exec(ctx, statement)
		must(t, err)
	}
}

// seedWorkspaces creates workspaces, each with a member who has approved a connector.
func (e *seededStack) seedWorkspaces(ctx context.Context, db *pgx.Conn) error {
	var workspaces, users, clients []uuid.UUID
	for i := range e.workspaces {
		workspaces = append(workspaces, id("tenant", i))
		users = append(users, id("user", i))
		clients = append(clients, id("client", i))
	}
	all := pgx.NamedArgs{
		"tenants": workspaces, "users": users, "clients": clients, "organisation": id("organisation", 0),
		"callback": callback, "resource": e.resource(),
	}
	for _, sql := range []string{
		`insert into account.organisations (id, name) values (@organisation, 'Canal Lane Trust')`,
		`insert into account.tenants (id, organisation_id, name)
				  select t, @organisation, 'Canal Lane Pantry ' || t from unnest(@tenants::uuid[]) t`,
		`insert into account.tenant_modules (tenant_id, module, enabled, provisioned)
				  select t, m, true, true from unnest(@tenants::uuid[]) t, unnest(array['programmes', 'engage']) m`,
		`insert into account.tenant_features (tenant_id, feature, enabled)
				  select t, 'llm_integration', true from unnest(@tenants::uuid[]) t`,
		`insert into account.users (id, email, name)
				  select u, u || '@example.org', 'Ada Okafor' from unnest(@users::uuid[]) u`,
		`insert into account.memberships (tenant_id, user_id, permissions)
				  select t, u, array['programmes:read:programmes']
				  from unnest(@tenants::uuid[], @users::uuid[]) as x(t, u)`,
		`insert into account.oauth_clients (id, kind, tenant_id, name, redirect_uris, required_permissions,
				    connector_platform, resource, token_endpoint_auth_method, created_by)
			select c, 'connector', t, 'Claude', array[@callback], array['programmes:read:programmes'],
			  'claude', @resource, 'none', u
			from unnest(@tenants::uuid[], @users::uuid[], @clients::uuid[]) as x(t, u, c)`,
	} {
		if _, err := db.Exec(ctx, sql, all); err != nil {
			return err
		}
	}
	return nil
}

func (e *seededStack) seedGrants(ctx context.Context, db *pgx.Conn) error {
	now := time.Now()
	rows := pgx.CopyFromSlice(e.grants, func(i int) ([]any, error) {
		workspace := e.workspace(i)
		return []any{
			id("grant", i), "connector", id("client", workspace), id("user", workspace), id("tenant", workspace),
			[]string{"programmes:read:programmes"}, e.resource(), "active", seededGeneration,
			[]byte(hash(i, seededGeneration)), []byte(hash(i, 0)), now.Add(-time.Hour), now.Add(-time.Minute),
			now.Add(29 * 24 * time.Hour),
		}, nil
	})
	_, err := db.CopyFrom(ctx, pgx.Identifier{"account", "grants"}, []string{
		"id", "kind", "client_id", "user_id", "tenant_id", "permissions", "resource", "state", "generation",
		"refresh_hash", "code_binding", "created_at", "last_used_at", "ends_at",
	}, rows)
	return err
}

// seedProgrammes fills the workspace whose list is measured.
func (e *seededStack) seedProgrammes(ctx context.Context, db *pgx.Conn) error {
	_, err := db.Exec(ctx, `insert into resource.programmes
			(id, tenant_id, name, summary, status, starts_on, created_at)
		select gen_random_uuid(), $1::uuid, 'Lunch club ' || n,
			'A hot meal and company every Thursday, open to everyone.',
			(array['draft', 'active', 'active', 'completed', 'archived'])[1 + n % 5],
			current_date, now() - n * interval '1 minute'
		from generate_series(1, $2::int) n`, e.product.Demo.Workspaces.Main.ID, e.programmes)
	return err
}

// seedAudit inserts consent events as authserver does, for some of the grants.
func (e *seededStack) seedAudit(ctx context.Context, db *pgx.Conn) (int64, error) {
	const events = `insert into account.audit_events
			(id, tenant_id, user_id, actor, action, subject, detail, request_id)
		select gen_random_uuid(), tenant_id, user_id, 'user:' || user_id, 'grant.consented', 'grant:' || id,
			jsonb_build_object('client_id', client_id::text, 'permissions', to_jsonb(permissions)), gen_random_uuid()
		from account.grants where state = 'active' limit 100000`
	tag, err := db.Exec(ctx, events)
	return tag.RowsAffected(), err
}

// luaScripts loads the authserver scripts that redeem a grant's code and refresh its token.
func luaScripts(redis *redisConn) (map[string]string, error) {
	prelude, hashes := "", map[string]string{}
	for _, name := range []string{"prelude", "issue", "exchange", "rotate"} {
		source, err := os.ReadFile("../../authserver/internal/store/redis/lua/" + name + ".lua")
		if err != nil {
			return nil, err
		}
		if name == "prelude" {
			prelude = string(source)
			continue
		}
		// The product adds a deadline and the time to each call.
		script := prelude + "\nlocal function answer()\n" + string(source) + "\nend\nreturn answer()"
		if hashes[name], err = redis.do("SCRIPT", "LOAD", script); err != nil {
			return nil, err
		}
	}
	return hashes, nil
}

const grantsAtOnce = 500 // pipelined together

func (e *seededStack) seedRedis(redis *redisConn) error {
	scripts, err := luaScripts(redis)
	if err != nil {
		return err
	}
	before, err := redis.memory()
	if err != nil {
		return err
	}
	ends := strconv.FormatInt(time.Now().Add(29*24*time.Hour).UnixMilli(), 10)
	for first := 0; first < e.grants; first += grantsAtOnce {
		last := min(first+grantsAtOnce, e.grants)
		for i := first; i < last; i++ {
			e.queueGrant(redis, scripts, i, ends)
		}
		if err := redis.out.Flush(); err != nil {
			return err
		}
		for range 3 * (last - first) {
			if result, err := redis.receive(); err != nil || result != "ok" {
				return fmt.Errorf("a grant was not accepted: %s %w", result, err)
			}
		}
	}
	after, err := redis.memory()
	e.grantBytesRedis = (after - before) / float64(e.grants)
	return err
}

// queueGrant queues the calls that issue a code, redeem it and refresh its token. Each of them returns ok.
func (e *seededStack) queueGrant(redis *redisConn, scripts map[string]string, i int, ends string) {
	key, client := "g:{"+id("grant", i).String()+"}", id("client", e.workspace(i)).String()
	challenge := base64.RawURLEncoding.EncodeToString(make([]byte, 32))
	call := func(name string, args ...string) {
		redis.queue(append([]string{"EVALSHA", scripts[name], "1", key}, args...)...)
	}
	const noneGivenUp, notDirect = "", ""
	call("issue", hash(i, 0), "60000", client, callback, e.resource(), challenge, ends, "1")
	call("exchange", nonce(), hash(i, 0), client, callback, e.resource(), challenge, hash(i, 1), noneGivenUp, notDirect)
	call("rotate", nonce(), "1", hash(i, 1), client, e.resource(), hash(i, seededGeneration), noneGivenUp, notDirect)
}

// nonce returns a nonce of the product's length.
func nonce() string { return strings.ReplaceAll(uuid.NewString(), "-", "")[:16] }

func TestSeeding_GrantsAreAccepted(t *testing.T) {
	redis, err := dialRedis(harness.Servers(t, localstore.StartRedis).URL)
	must(t, err)
	defer func() { _ = redis.connection.Close() }()
	scripts, err := luaScripts(redis)
	must(t, err)
	e := &seededStack{scale: scale{workspaces: 1}, running: &stack.Stack{}}
	e.queueGrant(redis, scripts, 0, strconv.FormatInt(time.Now().Add(time.Hour).UnixMilli(), 10))
	must(t, redis.out.Flush())
	for range 3 {
		if result, err := redis.receive(); result != "ok" || err != nil {
			t.Errorf("got %q %v, want ok", result, err)
		}
	}
}

// A redisConn is a connection to Redis that speaks RESP 2 directly: it costs little and allows pipelining.
type redisConn struct {
	connection net.Conn
	in         *bufio.Reader
	out        *bufio.Writer
}

func dialRedis(address string) (*redisConn, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	connection, err := net.Dial("tcp", u.Host)
	if err != nil {
		return nil, err
	}
	l := &redisConn{connection, bufio.NewReader(connection), bufio.NewWriterSize(connection, 1<<16)}
	password, _ := u.User.Password()
	_, err = l.do("AUTH", password)
	return l, err
}

// do sends a command and returns its reply.
func (l *redisConn) do(words ...string) (string, error) {
	l.queue(words...)
	if err := l.out.Flush(); err != nil {
		return "", err
	}
	return l.receive()
}

// queue queues a command. Flush returns any error.
func (l *redisConn) queue(words ...string) {
	_, _ = l.out.WriteString("*" + strconv.Itoa(len(words)) + "\r\n") // Flush returns the error
	for _, word := range words {
		_, _ = l.out.WriteString("$" + strconv.Itoa(len(word)) + "\r\n" + word + "\r\n")
	}
}

// receive reads the next reply: a simple string, a number or one bulk string.
func (l *redisConn) receive() (string, error) {
	line, err := l.in.ReadString('\n')
	if err != nil {
		return "", err
	}
	kind, rest := line[0], strings.TrimSpace(line[1:])
	switch kind {
	case '-':
		return "", fmt.Errorf("redis refuses: %.40s", rest)
	case '$':
		length, err := strconv.Atoi(rest)
		if err != nil || length < 0 {
			return "", err
		}
		text := make([]byte, length+2)
		_, err = io.ReadFull(l.in, text)
		return string(text[:length]), err
	}
	return rest, nil
}

// memory returns the memory that Redis uses, in bytes (INFO memory, used_memory).
func (l *redisConn) memory() (float64, error) {
	info, err := l.do("INFO", "memory")
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(info, "used_memory:")
	line, _, _ := strings.Cut(rest, "\r\n")
	return strconv.ParseFloat(line, 64)
}
