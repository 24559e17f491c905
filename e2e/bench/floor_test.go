package bench

import (
	"bufio"
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/contract/accesstoken"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/devkit/localstore"
)

// floorVariable makes this test binary the floor server; its value is the URL of its Redis. If floorDatabaseVariable is
// set, it is the URL of a database in which the server also stores its responses. If floorJobsVariable is set, it is
// the URL of a database, and the server only stores what it receives there.
const (
	floorVariable         = "ALMONER_BENCH_FLOOR"
	floorDatabaseVariable = "ALMONER_BENCH_FLOOR_DATABASE"
	floorJobsVariable     = "ALMONER_BENCH_FLOOR_JOBS"
)

// floorScript reads and writes one field, the minimum that makes a token single-use.
const floorScript = `redis.call('HGET', KEYS[1], 'rh') redis.call('HSET', KEYS[1], 'rh', ARGV[1]) return 'ok'`

// startFloor starts the floor server in its own process.
func startFloor(t *testing.T, redis *localstore.Redis, settings ...string) target {
	t.Helper()
	command := exec.CommandContext(t.Context(), os.Args[0])
	command.Env = append(append(os.Environ(), floorVariable+"="+redis.URL), settings...)
	address, pid := startServer(t, command)
	return target{name: "floor", url: address, pids: []int{pid}, redis: []int{redis.PID()}}
}

// startServer starts a server that prints its address. It runs until its standard input ends, at the end of the test.
func startServer(t *testing.T, command *exec.Cmd) (address string, pid int) {
	t.Helper()
	command.Stderr = os.Stderr
	_, err := command.StdinPipe()
	must(t, err)
	out, err := command.StdoutPipe()
	if err == nil {
		err = command.Start()
	}
	must(t, err)
	t.Cleanup(func() { _, _ = command.Process.Kill(), command.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("%s printed no address", command.Path)
	}
	return strings.TrimSpace(line), command.Process.Pid
}

// A floor is the floor server. Without a database it does not use Postgres.
type floor struct {
	key      accesstoken.SigningKey
	redis    string
	idle     chan *redisConn // idle connections to Redis
	database *pgxpool.Pool
}

// serveFloor runs the floor server.
func serveFloor(redis, database, jobs string) error {
	raw, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	private := jose.JSONWebKey{Key: raw, KeyID: "floor"}
	f := &floor{redis: redis, idle: make(chan *redisConn, 64)}
	if f.key, err = accesstoken.NewSigningKey(private); err != nil {
		return err
	}
	if address := cmp.Or(database, jobs); address != "" {
		if f.database, err = pgxpool.New(context.Background(), address); err != nil {
			return err
		}
	}
	answer := f.answer
	if jobs != "" {
		answer = f.accept
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println("http://" + listener.Addr().String())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0) // the parent process has ended
	}()
	server := &http.Server{
		ReadHeaderTimeout: time.Minute,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if err := answer(w, r); err != nil {
				http.Error(w, "failed", http.StatusInternalServerError)
			}
		}),
	}
	return server.Serve(listener)
}

func (f *floor) answer(w http.ResponseWriter, r *http.Request) error {
	if err := r.ParseForm(); err != nil {
		return err
	}
	work := f.decide
	if f.database != nil {
		work = f.store
	}
	if err := work(r); err != nil {
		return err
	}
	now := time.Now()
	access, err := accesstoken.Sign(f.key, accesstoken.Claims{
		Issuer:      "http://localhost",
		Subject:     uuid.New(),
		Audience:    r.PostForm.Get("resource"),
		Expires:     now.Add(time.Hour),
		IssuedAt:    now,
		ID:          uuid.NewString(),
		ClientID:    r.PostForm.Get("client_id"),
		Scope:       perm.NewSet(perm.ProgrammesRead),
		WorkspaceID: uuid.New(),
		GrantID:     uuid.New(),
	})
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	return json.NewEncoder(w).Encode(map[string]any{
		"access_token": access.Reveal(), "token_type": "Bearer", "expires_in": 3600,
		"refresh_token": rand.Text() + rand.Text(),
	})
}

// decide runs the script in Redis.
func (f *floor) decide(r *http.Request) error {
	var line *redisConn
	var err error
	select {
	case line = <-f.idle:
	default:
		line, err = dialRedis(f.redis)
	}
	if err != nil {
		return err
	}
	if _, err := line.do("EVAL", floorScript, "1", "floor:{"+r.PostForm.Get("client_id")+"}", rand.Text()); err != nil {
		return err
	}
	f.idle <- line
	return nil
}

// store does the minimum in Postgres for a decision that must survive the loss of Redis: it reads a row by its key
// before the decision and writes it afterwards, without waiting for the disk.
func (f *floor) store(r *http.Request) error {
	row, err := strconv.Atoi(r.PostForm.Get("refresh_token"))
	if err != nil {
		return err
	}
	var generation int
	query := f.database.QueryRow(r.Context(), `select generation from floor where id = $1`, row)
	if err := query.Scan(&generation); err != nil {
		return err
	}
	if err := f.decide(r); err != nil {
		return err
	}
	_, err = f.database.Exec(r.Context(), `update floor set generation = generation + 1 where id = $1`, row)
	return err
}

// accept is the minimum for a submission that is processed later: it commits one row and one job.
func (f *floor) accept(w http.ResponseWriter, r *http.Request) error {
	content, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	id := uuid.Must(uuid.NewV7())
	err = pgx.BeginFunc(r.Context(), f.database, func(tx pgx.Tx) error {
		_, err := tx.Exec(r.Context(), `insert into records (id, content) values ($1, $2)`, id, content)
		if err == nil {
			_, err = tx.Exec(r.Context(), `insert into jobs (record) values ($1)`, id)
		}
		return err
	})
	w.WriteHeader(http.StatusAccepted)
	return err
}

// newFloorDatabase creates a database with a row for each connection. Its commits do not wait for the disk.
func newFloorDatabase(t *testing.T, server *localstore.Postgres, connections int) (address string) {
	t.Helper()
	return floorDatabase(t, server, "floor", `alter database floor set synchronous_commit = off`,
		`create table floor (id int primary key, generation int not null) with (fillfactor = 50)`,
		fmt.Sprintf(`insert into floor select connection, 0 from generate_series(0, %d) connection`, connections-1))
}

// newJobsDatabase creates a database with tables of records and jobs. Its commits wait for the disk.
func newJobsDatabase(t *testing.T, server *localstore.Postgres) (address string) {
	t.Helper()
	return floorDatabase(t, server, "jobs", `create table records (id uuid primary key, content jsonb not null)`,
		`create table jobs (id bigint generated always as identity primary key, record uuid not null,
			state text not null default 'available')`)
}

// floorDatabase creates a database, and runs statements in it.
func floorDatabase(t *testing.T, server *localstore.Postgres, name string, statements ...string) (address string) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	execute := func(address, statement string) {
		db, err := pgx.Connect(ctx, address)
		must(t, err)
		defer func() { _ = db.Close(ctx) }()
		_, err = db.Exec(ctx, statement)
		must(t, err)
	}
	execute(server.URL, `create database `+name)
	own, err := url.Parse(server.URL)
	must(t, err)
	own.Path = "/" + name
	for _, statement := range statements {
		execute(own.String(), statement)
	}
	return own.String()
}

const storingWork = "one script, one signature, one row read and written"

// TestFloor compares a refresh with the floor, and with a floor that stores in Postgres what a refresh must store
// there.
func TestFloor(t *testing.T) {
	r := begin(t, "floor")
	const connections = 32
	running := harness.Private(t, harness.Options{Durable: true})
	b := enter(t, running)
	least := startFloor(t, running.Redis)
	keeping := startFloor(t, running.Redis,
		floorDatabaseVariable+"="+newFloorDatabase(t, running.Postgres, connections))
	keeping.postgres = []int{running.Postgres.PID()}
	form := b.connector.RefreshForm("x")
	loads := []load{
		{what: refreshing, at: b.account, worker: b.refresh(t)},
		{what: floorWork, at: least, worker: constant(func() *http.Request { return b.token(least, form) })},
		{
			what: storingWork,
			at:   keeping,
			worker: func(connection int) (makeRequest, takeBody) {
				own := b.connector.RefreshForm(strconv.Itoa(connection))
				return func() *http.Request { return b.token(keeping, own) }, ignoreBody
			},
		},
	}
	all, order := measureAll(t, loads, []int{connections})
	r.line("%d rounds of %s each, in which everything takes its turn; generator and stores included. The second floor "+
		"reads a row of Postgres by its key", *rounds, *each)
	r.line("before the script and writes it afterwards, without waiting for the disk: the least that a refresh takes " +
		"where Redis may lose everything")
	r.line("and no token may be good twice (shared/grants.md).\n")
	r.table(all, order)
	share := func(what string) float64 {
		return all.ratio(key{refreshing, ourselves, connections}, key{what, least.name, connections})
	}
	r.line("\nThe rate of refreshes is %.2f of the first floor's rate and %.2f of the second floor's rate.",
		share(floorWork), share(storingWork))
	r.write(t)
}
