package bench

import (
	"bufio"
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

	"github.com/google/uuid"
	"github.com/lestrrat-go/jwx/v2/jwk"

	"github.com/almonerhq/almoner/shared/accesstoken"
	"github.com/almonerhq/almoner/shared/localstore"
	"github.com/almonerhq/almoner/shared/perm"
)

// floorVariable makes this test binary the floor server: it holds the URL of its Redis.
const floorVariable = "ALMONER_BENCH_FLOOR"

// The script compares and sets, as the least that makes a token good for one use.
const floorScript = `redis.call('HGET', KEYS[1], 'rh') redis.call('HSET', KEYS[1], 'rh', ARGV[1]) return 'ok'`

// startFloor starts the floor server in a process of its own.
func startFloor(t *testing.T, redis *localstore.Redis) target {
	t.Helper()
	command := exec.CommandContext(t.Context(), os.Args[0])
	command.Env = append(os.Environ(), floorVariable+"="+redis.URL)
	address, pid := startServer(t, command)
	return target{name: "floor", url: address, pids: []int{pid}, redis: []int{redis.PID()}}
}

// startServer starts a server that prints its address, for as long as the test runs: it ends when its input does.
func startServer(t *testing.T, command *exec.Cmd) (address string, pid int) {
	t.Helper()
	command.Stderr = os.Stderr
	_, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := command.StdoutPipe()
	if err == nil {
		err = command.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = command.Process.Kill(), command.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("%s does not start", command.Path)
	}
	return strings.TrimSpace(line), command.Process.Pid
}

// serveFloor is the floor server.
func serveFloor(redis string) error {
	raw, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	private, err := jwk.FromRaw(raw)
	if err == nil {
		err = private.Set(jwk.KeyIDKey, "floor")
	}
	if err != nil {
		return err
	}
	key, err := accesstoken.NewSigningKey(private)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println("http://" + listener.Addr().String())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0) // whoever started us is gone
	}()
	idle := make(chan *redisLine, 64) // connections to Redis that nobody uses now
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := answerFloor(w, r, key, redis, idle); err != nil {
			http.Error(w, "failed", http.StatusInternalServerError)
		}
	})}
	return server.Serve(listener)
}

func answerFloor(w http.ResponseWriter, r *http.Request, key accesstoken.SigningKey, redis string, idle chan *redisLine) error {
	if err := r.ParseForm(); err != nil {
		return err
	}
	var line *redisLine
	var err error
	select {
	case line = <-idle:
	default:
		line, err = dialRedis(redis)
	}
	if err != nil {
		return err
	}
	if _, err := line.do("EVAL", floorScript, "1", "floor:{"+r.PostForm.Get("client_id")+"}", rand.Text()); err != nil {
		return err
	}
	idle <- line
	now := time.Now()
	access, err := accesstoken.Sign(key, accesstoken.Claims{
		Issuer: "http://localhost", Subject: uuid.New(), Audience: r.PostForm.Get("resource"), Expires: now.Add(time.Hour), IssuedAt: now,
		ID: uuid.NewString(), ClientID: r.PostForm.Get("client_id"), Scope: perm.NewSet(perm.ProgrammesRead), TenantID: uuid.New(), GrantID: uuid.New(),
	})
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	return json.NewEncoder(w).Encode(map[string]any{
		"access_token": access.Reveal(), "token_type": "Bearer", "expires_in": 3600, "refresh_token": rand.Text() + rand.Text(),
	})
}
