package redisurl

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/devkit/await"
	"github.com/almonerhq/almoner/shared/devkit/localstore"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

var must = testkit.Must

// limits are short: a test that needs an answer repeats its call.
func limits() Limits {
	const short = testkit.SilentStoreWait / 10
	return Limits{Dial: short, Call: short, Pool: 2 * short, Connections: 4}
}

func TestOpen_ChoosesClientByQuery(t *testing.T) {
	for url, want := range map[string]string{
		"redis://:secret@127.0.0.1:6379/0":                   "single 127.0.0.1:6379",
		"rediss://almoner:secret@one.example:6379/2":         "single one.example:6379 with TLS",
		"redis://:secret@127.0.0.1:6379?addr=127.0.0.1:6380": "cluster [127.0.0.1:6379 127.0.0.1:6380]",
		"rediss://almoner:secret@one.example:6379?addr=two:6379&addr=three.example:1": "cluster " +
			"[one.example:6379 two:6379 three.example:1] with TLS",
		"redis://one:26379?master_name=almoner&password=secret": "single FailoverClient",
		"rediss://u:s@one:26379/0?master_name=m&username=a&password=secret&addr=two:26379": "single " +
			"FailoverClient with TLS",
	} {
		client, err := Open(credential.Secret(url), limits())
		if err != nil {
			t.Errorf("%s: %v", url, err)
			continue
		}
		if got := describe(client); got != want {
			t.Errorf("%s is %s, want %s", url, got, want)
		}
		_ = client.Close()
	}
}

func describe(client goredis.UniversalClient) string {
	tls := func(on bool) string {
		if on {
			return " with TLS"
		}
		return ""
	}
	switch c := client.(type) {
	case *goredis.ClusterClient:
		return fmt.Sprint("cluster ", c.Options().Addrs) + tls(c.Options().TLSConfig != nil)
	case *goredis.Client:
		return "single " + c.Options().Addr + tls(c.Options().TLSConfig != nil)
	default:
		return fmt.Sprintf("%T", client)
	}
}

// No kind of client retries by itself, and each ends with its caller's context.
func TestOpen_ClientsDoNotRetry(t *testing.T) {
	for _, url := range []string{
		"redis://a:1", "redis://a:1?max_retries=3", "redis://a:1?master_name=m&max_retries=3",
	} {
		client, err := Open(credential.Secret(url), limits())
		must(t, err)
		if o := client.(*goredis.Client).Options(); o.MaxRetries != 0 || o.DialerRetries != 1 ||
			!o.ContextTimeoutEnabled || o.PoolSize != 4 || o.ReadTimeout != limits().Call {
			t.Errorf("%s: %+v", url, o)
		}
		_ = client.Close()
	}
	client, err := Open("redis://a:1?addr=b:1&max_retries=3&max_redirects=9", limits())
	must(t, err)
	defer func() { _ = client.Close() }()
	if o := client.(*goredis.ClusterClient).Options(); o.MaxRetries > 0 || o.MaxRedirects != redirects ||
		o.DialerRetries != 1 || !o.ContextTimeoutEnabled || o.PoolSize != 4 {
		t.Errorf("%+v", o)
	}
}

// A replica may be behind: a URL that requests one is refused instead of using the master.
func TestOpen_RefusesInvalidURLWithoutQuotingIt(t *testing.T) {
	for _, url := range []string{
		"", "secret", "http://:secret@x:1", "redis://:secret@%zz", "redis://:secret@a:1/secret",
		"redis://:secret@a:1?nonsense=secret", "redis://:secret@a:1?addr=b:1&nonsense=secret",
		"http://:secret@x?addr=y:1", "redis://:secret@a:1?addr=secret", "redis://:secret@a:1?addr=b:1&read_only=true",
		"redis://:secret@a:1?addr=b:1&route_by_latency=true", "redis://:secret@a:1?addr=b:1&route_randomly=true",
		"redis://:secret@a:1?master_name=", "redis://:secret@a:1?master_name=m&nonsense=secret",
		"redis://:secret@a:1?master_name=m&replica_only=true",
		"redis://:secret@a:1?master_name=m&route_by_latency=true",
		"redis://:secret@a:1?master_name=m&route_randomly=true", "http://:secret@a:1?master_name=m",
	} {
		if _, err := Open(credential.Secret(url), limits()); !errors.Is(err, ErrURL) ||
			strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", url, err)
		}
	}
}

func TestOpen_HooksSeeCommands(t *testing.T) {
	t.Parallel()
	hook := &seen{command: "ping"}
	client, err := Open(credential.Secret(testkit.NewRedis(t).URL), limits(), hook)
	must(t, err)
	defer func() { _ = client.Close() }()
	hook.wantEach(t, func() error { return client.Ping(t.Context()).Err() })
}

// The client finds the new master by itself after a master dies, even if a Sentinel stops at the same time
// with its connections still open. Connecting takes longer then than a server takes to respond.
func TestSentinel_ClientFollowsMaster(t *testing.T) {
	t.Parallel()
	dir, err := localstore.TempDir("almoner-redisurl-")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	s, err := localstore.StartRedisSentinel(t.Context(), localstore.Options{Dir: dir})
	must(t, err)
	t.Cleanup(s.Stop)
	const name = "follower"
	within := limits()
	within.Dial /= 4
	hook := &seen{command: "set"}
	client, err := Open(credential.Secret(s.URL+"&client_name="+name), within, hook)
	must(t, err)
	t.Cleanup(func() { _ = client.Close() })
	hook.wantEach(t, func() error { return client.Set(t.Context(), "word", "here", 0).Err() })
	await.NoError(t, func() error {
		n, err := client.Do(t.Context(), "WAIT", 2, 500).Int()
		return errors.Join(err, unless(n == 2, "not every replica has it"))
	})
	asked := slices.IndexFunc(s.Sentinels, func(each *localstore.Redis) bool { return isAskedBy(t, each, name) })
	if asked < 0 {
		t.Fatal("the client is not connected to any Sentinel")
	}
	must(t, s.Sentinels[asked].Pause())
	t.Cleanup(s.Sentinels[asked].Resume)
	master := s.Master()
	must(t, master.Pause())
	t.Cleanup(master.Resume)
	await.NoError(t, func() error {
		word, err := client.Get(t.Context(), "word").Result()
		return errors.Join(err, unless(word == "here", "the word is lost"))
	})
	await.NoError(t, func() error { return client.Set(t.Context(), "word", "there", 0).Err() })
}

func unless(met bool, complaint string) error {
	if met {
		return nil
	}
	return errors.New(complaint)
}

// Callers depend on knowing whether a script may have run. Without a known master it has not.
func TestSentinel_NoMasterIsDialError(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer func() { _ = silent.Close() }()
	for _, host := range []string{silent.Addr().String(), "127.0.0.1:1"} {
		client, err := Open(credential.Secret("redis://"+host+"?master_name=almoner"), limits())
		must(t, err)
		var known *net.OpError
		if err := client.Ping(t.Context()).Err(); !errors.As(err, &known) || known.Op != "dial" {
			t.Errorf("%s: %v", host, err)
		}
		_ = client.Close()
	}
}

// seen is a hook that counts a command.
type seen struct {
	command string
	times   int
}

// wantEach sends the command until it succeeds, and checks that the hook has seen it each time.
func (s *seen) wantEach(t *testing.T, send func() error) {
	t.Helper()
	sent := 0
	await.NoError(t, func() error { sent++; return send() })
	if s.times != sent {
		t.Errorf("%d of %d commands were seen", s.times, sent)
	}
}

func (s *seen) DialHook(next goredis.DialHook) goredis.DialHook { return next }
func (s *seen) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, command goredis.Cmder) error {
		if command.Name() == s.command {
			s.times++
		}
		return next(ctx, command)
	}
}
func (s *seen) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return next
}

// isAskedBy reports whether a client with this name is connected to the Sentinel.
func isAskedBy(t *testing.T, sentinel *localstore.Redis, name string) bool {
	t.Helper()
	options, err := goredis.ParseURL(sentinel.URL)
	must(t, err)
	owner := goredis.NewClient(options)
	defer func() { _ = owner.Close() }()
	list, err := owner.Do(t.Context(), "CLIENT", "LIST").Text()
	must(t, err)
	return strings.Contains(list, "name="+name)
}
