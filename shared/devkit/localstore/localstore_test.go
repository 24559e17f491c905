package localstore

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/shared/devkit/await"
	"github.com/almonerhq/almoner/shared/devkit/localstore/child"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func tempDir(t *testing.T) string {
	t.Helper()
	dir, err := TempDir("almoner-localstore-")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func startPostgres(t *testing.T, dir string) *Postgres {
	t.Helper()
	server, err := StartPostgres(t.Context(), Options{Dir: dir, Volatile: true})
	must(t, err)
	t.Cleanup(server.Stop)
	return server
}

func startRedis(t *testing.T, options Options) *Redis {
	t.Helper()
	server, err := StartRedis(t.Context(), options)
	must(t, err)
	t.Cleanup(server.Stop)
	return server
}

func query(t *testing.T, url, sql string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), await.Long)
	defer cancel()
	connection, err := pgx.Connect(ctx, url)
	if err != nil {
		return "", err
	}
	defer func() { _ = connection.Close(context.WithoutCancel(ctx)) }()
	var out string
	err = connection.QueryRow(ctx, sql).Scan(&out)
	return out, err
}

func expect(t *testing.T, url, sql, want string) {
	t.Helper()
	if got, err := query(t, url, sql); err != nil || got != want {
		t.Errorf("%s: %q, %v; want %q", sql, got, err, want)
	}
}

func TestPostgres_DataSurvivesStopAndKill(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	server := startPostgres(t, dir)
	expect(t, server.URL, "show server_encoding", "UTF8")
	expect(t, server.URL, "show synchronous_commit", "on")
	if _, err := query(t, server.URL, "create table kept as select 'here' as word"); !errors.Is(err, pgx.ErrNoRows) {
		t.Fatal(err)
	}
	server.Kill()
	if _, err := query(t, server.URL, "select 'x'"); err == nil {
		t.Fatal("a killed server answered")
	}
	must(t, server.Restart(t.Context()))
	expect(t, server.URL, "select word from kept", "here")
	server.Stop()
	expect(t, startPostgres(t, dir).URL, "select word from kept", "here")
}

func TestPostgres_ReplicaFollowsAndTakesOver(t *testing.T) {
	t.Parallel()
	primary := startPostgres(t, tempDir(t))
	replica, err := StartReplica(t.Context(), primary, Options{Dir: tempDir(t), Volatile: true})
	must(t, err)
	t.Cleanup(replica.Stop)
	if _, err := query(t, primary.URL, "create table kept as select 'here' as word"); !errors.Is(err, pgx.ErrNoRows) {
		t.Fatal(err)
	}
	await.True(t, "the replica has the row", func() bool {
		word, err := query(t, replica.URL, "select word from kept")
		return err == nil && word == "here"
	})
	primary.Kill()
	must(t, replica.Promote(t.Context()))
	expect(t, replica.URL, "update kept set word = 'ours' returning word", "ours")
	must(t, primary.Follow(t.Context(), replica))
	expect(t, primary.URL, "select word from kept", "ours")
	expect(t, primary.URL, "select pg_is_in_recovery()::text", "true")
}

func TestPostgres_PauseAndResume(t *testing.T) {
	t.Parallel()
	server := startPostgres(t, tempDir(t))
	connection := connect(t, server.URL)
	must(t, server.Pause())
	answered := make(chan error, 1)
	go func() { _, err := connection.Exec(context.Background(), "select 1"); answered <- err }()
	select {
	case err := <-answered:
		t.Fatalf("an existing session was answered while paused: %v", err)
	case <-time.After(300 * time.Millisecond):
	}
	server.Resume()
	if err := <-answered; err != nil {
		t.Error(err)
	}
}

// A killed process leaves a part of a data directory. A killed server leaves its lock file, and a session that hangs
// prevents the next start unless it is ended first. A session of another server must not be ended.
func TestStartPostgres_RecoversFromKill(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	must(t, os.MkdirAll(filepath.Join(dir, "data.new", "base"), 0o700))
	server, other := startPostgres(t, dir), startPostgres(t, tempDir(t))
	session, bystander := connect(t, server.URL), connect(t, other.URL)
	orphan := int(session.PgConn().PID())
	must(t, syscall.Kill(orphan, syscall.SIGSTOP))
	t.Cleanup(func() { _ = syscall.Kill(orphan, syscall.SIGKILL) })
	if err := server.Current().Signal(syscall.SIGKILL); err != nil { // the server alone
		t.Fatal(err)
	}
	<-server.Done()
	if !slices.Contains(child.WorkingIn(server.data()), orphan) {
		t.Fatal("the session does not outlive its server")
	}
	// The id is of a process of the same user, which is not a PostgreSQL of this directory.
	stale := strconv.Itoa(other.Current().PID()) + "\n" + server.data() + "\n1\n1\n\n127.0.0.1\n1 1\nready\n"
	must(t, os.WriteFile(filepath.Join(server.data(), "postmaster.pid"), []byte(stale), 0o600))
	expect(t, startPostgres(t, dir).URL, "select 'up'", "up")
	if slices.Contains(child.WorkingIn(server.data()), orphan) {
		t.Error("the session outlives the next start")
	}
	if _, err := bystander.Exec(t.Context(), "select 1"); err != nil {
		t.Errorf("session of another server: %v", err)
	}
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	connection, err := pgx.Connect(t.Context(), url)
	must(t, err)
	t.Cleanup(func() { _ = connection.Close(context.Background()) })
	return connection
}

func TestPostgres_RefusesWrongPasswordAndDirectoryInUse(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	server := startPostgres(t, dir)
	_, err := query(t, strings.Replace(server.URL, superuser+":", superuser+":not", 1), "select 'x'")
	if err == nil || !strings.Contains(err.Error(), "password") {
		t.Errorf("wrong password: %v", err)
	}
	soon, cancel := context.WithTimeout(t.Context(), time.Millisecond) // in place of a minute
	defer cancel()
	_, err = StartPostgres(soon, Options{Dir: dir})
	if err == nil || !strings.Contains(err.Error(), "another PostgreSQL") {
		t.Errorf("got %v", err)
	}
}

func TestStartPostgres_RefusesOtherMajorVersion(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	must(t, os.MkdirAll(filepath.Join(dir, "data"), 0o700))
	must(t, os.WriteFile(filepath.Join(dir, "data", "PG_VERSION"), []byte("9\n"), 0o600))
	_, err := StartPostgres(t.Context(), Options{Dir: dir})
	if err == nil || !strings.Contains(err.Error(), "created by PostgreSQL 9, which is not installed") {
		t.Errorf("got %v", err)
	}
}

func TestStartPostgres_RootNeedsReachableDirectory(t *testing.T) {
	t.Parallel()
	closed := t.TempDir()
	inside := filepath.Join(closed, "inside")
	must(t, os.Chmod(closed, 0o700))
	_, err := StartPostgres(t.Context(), Options{Dir: inside, Volatile: true})
	switch {
	case os.Geteuid() != 0 && err != nil:
		t.Errorf("own directory of an ordinary user: %v", err)
	case os.Geteuid() == 0 && (err == nil || !strings.Contains(err.Error(), "cannot be reached")):
		t.Errorf("root-only directory: %v", err)
	}
}

func TestRedis_DataSurvivesKillUntilForget(t *testing.T) {
	t.Parallel()
	server := startRedis(t, Options{Dir: tempDir(t)})
	ask := func(command, want string) {
		t.Helper()
		if got := redisAsk(t, server, command); got != want {
			t.Errorf("%s: %q, want %q", command, got, want)
		}
	}
	ask("CONFIG GET maxmemory-policy", "*2|$16|maxmemory-policy|$10|noeviction")
	ask("CONFIG GET appendfsync", "*2|$11|appendfsync|$8|everysec")
	ask("SET word here", "+OK")
	server.Kill()
	must(t, server.Restart(t.Context()))
	ask("GET word", "$4|here")
	server.Stop()
	must(t, server.Forget())
	must(t, server.Restart(t.Context()))
	ask("GET word", "$-1")
}

func TestRedis_RequiresPasswordAndVolatileWritesFileBeforeEachReply(t *testing.T) {
	t.Parallel()
	server := startRedis(t, Options{Dir: tempDir(t), Volatile: true})
	if got := redisAsk(t, server, "CONFIG GET appendfsync"); got != "*2|$11|appendfsync|$2|no" {
		t.Errorf("appendfsync is %q, want no", got)
	}
	server.password = "another"
	if server.ping() == nil {
		t.Error("a wrong password was accepted")
	}
}

func redisAsk(t *testing.T, server *Redis, command string) string {
	t.Helper()
	connection, err := net.Dial("tcp", server.address())
	must(t, err)
	defer func() { _ = connection.Close() }()
	if _, err := connection.Write([]byte("AUTH " + server.password + "\r\n" + command + "\r\nQUIT\r\n")); err != nil {
		t.Fatal(err)
	}
	var all []byte
	buffer := make([]byte, 4096)
	for {
		n, err := connection.Read(buffer)
		all = append(all, buffer[:n]...)
		if err != nil {
			break
		}
	}
	answer := strings.TrimSuffix(strings.TrimPrefix(string(all), "+OK\r\n"), "+OK\r\n")
	return strings.ReplaceAll(strings.TrimSuffix(answer, "\r\n"), "\r\n", "|")
}

func TestFindPostgres_ReportsMissingProgram(t *testing.T) {
	t.Parallel()
	if _, err := findPostgres("", 9); !errors.Is(err, ErrMissing) {
		t.Errorf("PostgreSQL 9: %v", err)
	}
	if err := FindPostgres(""); err != nil {
		t.Errorf("PostgreSQL: %v", err)
	}
	if err := FindRedis(""); err != nil {
		t.Errorf("Redis: %v", err)
	}
}

func TestRemoveAfterUs_RemovesDirectoryWhenLifelineCloses(t *testing.T) {
	t.Parallel()
	var dirs [2]string
	var lifelines [2]io.Closer
	for i := range dirs {
		dirs[i] = tempDir(t)
		var err error
		if lifelines[i], err = RemoveAfterUs(dirs[i]); err != nil {
			t.Fatal(err)
		}
	}
	exists := func(dir string) bool {
		_, err := os.Stat(dir)
		return !errors.Is(err, os.ErrNotExist)
	}
	for _, i := range []int{1, 0} { // the directory that is watched for longer is not removed before the other
		if !exists(dirs[i]) {
			t.Fatal("a directory was removed too early")
		}
		must(t, lifelines[i].Close())
		await.True(t, "the directory is removed", func() bool { return !exists(dirs[i]) })
	}
}

// A killed process cannot clean up.
func TestProcessDir_IsRemovedWhenProcessIsKilled(t *testing.T) {
	t.Parallel()
	const asChild = "ALMONER_TEST_PROCESS_DIR"
	if os.Getenv(asChild) != "" {
		dir, err := ProcessDir("almoner-test-")
		must(t, err)
		fmt.Println(dir)
		select {} // until it is killed
	}
	program := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	program.Env = append(os.Environ(), asChild+"=1")
	out, err := program.StdoutPipe()
	must(t, err)
	must(t, program.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	must(t, err)
	dir := strings.TrimSuffix(line, "\n")
	if _, err := os.Stat(dir); err != nil {
		t.Error(err)
	}
	_ = program.Process.Kill()
	_ = program.Wait()
	await.True(t, "the directory is removed", func() bool {
		_, err := os.Stat(dir)
		return errors.Is(err, os.ErrNotExist)
	})
}

func TestFreePort_IsOutsideEphemeralRange(t *testing.T) {
	t.Parallel()
	end := outgoingPorts()
	if end < lowestPort+1000 {
		t.Fatalf("this machine gives ports from %d on to outgoing connections: widen the gap for these tests", end)
	}
	for range 20 {
		port, err := FreePort()
		if err != nil || port < lowestPort || port >= end {
			t.Fatalf("port %d, %v", port, err)
		}
	}
	for _, host := range []string{"127.0.0.1", "0.0.0.0"} {
		listener, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
		must(t, err)
		if CheckPort(listener.Addr().(*net.TCPAddr).Port) == nil {
			t.Errorf("a port in use on %s is reported as free", host)
		}
		_ = listener.Close()
	}
}

func TestFreePort_ReturnsEachPortOnce(t *testing.T) {
	t.Parallel()
	given := map[int]bool{}
	for range 100 {
		first, err := FreePorts(3)
		must(t, err)
		for port := first; port < first+3; port++ {
			if given[port] {
				t.Fatalf("port %d was returned twice", port)
			}
			given[port] = true
		}
	}
}

// The socket stands for a reservation by another process.
func TestFreePort_ReservesPortUntilSocketIsClosed(t *testing.T) {
	t.Parallel()
	port := 1 + rand.IntN(lowestPort-1) // which FreePort does not return
	// A process that another test is starting has copies of the sockets until it runs its program.
	wants := func(want bool) {
		t.Helper()
		await.NoError(t, func() error {
			if got, err := reserve(port); got != want || err != nil {
				return fmt.Errorf("port %d was reserved: %t, %v, want %t", port, got, err, want)
			}
			return nil
		})
	}
	socket, err := net.Listen("unix", reservation(port))
	must(t, err)
	wants(false)
	_ = socket.Close()
	wants(true)
	held, _ := reserved.LoadAndDelete(port)
	_ = held.(net.Listener).Close()
	server, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		t.Skipf("port %d cannot be used: %v", port, err)
	}
	defer func() { _ = server.Close() }()
	wants(false)
	await.NoError(t, func() error { // a port in use does not stay reserved
		again, err := net.Listen("unix", reservation(port))
		if err == nil {
			_ = again.Close()
		}
		return err
	})
}

func TestRedisSentinel_ReplacesKilledMaster(t *testing.T) {
	t.Parallel()
	s, err := StartRedisSentinel(t.Context(), Options{Dir: tempDir(t)})
	must(t, err)
	t.Cleanup(s.Stop)
	first := s.Master()
	first.Kill()
	await.True(t, "there is a new master", func() bool {
		master := s.Master()
		return master != nil && master != first
	})
}
