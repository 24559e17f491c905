package bench

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/almonerhq/almoner/shared/contract/accesstoken"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/devkit/localstore"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

// floorVariable makes this test binary the floor server; its value is the URL of its Redis. If floorJobsVariable is
// set, it is the URL of a database, and the server only stores what it receives there.
const (
	floorVariable     = "ALMONER_BENCH_FLOOR"
	floorJobsVariable = "ALMONER_BENCH_FLOOR_JOBS"
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

// A floor is the floor server. Only one that stores jobs has a database.
type floor struct {
	key      accesstoken.SigningKey
	redis    string
	idle     chan *redisConn // idle connections to Redis
	database *pgxpool.Pool
}

// serveFloor runs the floor server.
func serveFloor(redis, jobs string) error {
	raw, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	private := jose.JSONWebKey{Key: raw, KeyID: "floor"}
	f := &floor{redis: redis, idle: make(chan *redisConn, 64)}
	if f.key, err = accesstoken.NewSigningKey(private); err != nil {
		return err
	}
	answer := f.answer
	if jobs != "" {
		answer = f.accept
		if f.database, err = pgxpool.New(context.Background(), jobs); err != nil {
			return err
		}
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
	if err := f.decide(r); err != nil {
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

// newJobsDatabase creates a database with tables of records and jobs. Its commits wait for the disk.
func newJobsDatabase(t *testing.T, server *localstore.Postgres) (address string) {
	t.Helper()
	address = testkit.InDatabase(server.URL, "jobs")
	for _, statement := range [][2]string{
		{server.URL, `create database jobs`},
		{address, `create table records (id uuid primary key, content jsonb not null)`},
		{address, `create table jobs (id bigint generated always as identity primary key, record uuid not null,
			state text not null default 'available')`},
	} {
		_, err := testkit.Connect(t, statement[0]).Exec(t.Context(), statement[1])
		must(t, err)
	}
	return address
}
