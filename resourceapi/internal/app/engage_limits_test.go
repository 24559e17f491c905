package app

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/devkit/await"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

// flood sends n submissions from the address, and counts the responses by status.
func (s *service) flood(f formRecord, address string, n int) map[int]int {
	s.t.Helper()
	counts, body := map[int]int{}, submissionOf("", goodAnswers())
	for range n {
		a := s.submit(f, header{"X-Forwarded-For": address}, body)
		counts[a.Status]++
		if a.Status == 429 {
			seconds, err := strconv.Atoi(a.Header.Get("Retry-After"))
			if a.code(s.t) != "RATE_LIMITED" || err != nil || seconds < 1 || seconds > 60 {
				s.t.Errorf("%s %v", a.Body, a.Header)
			}
		}
	}
	return counts
}

func TestSubmit_Limits120PerMinutePerAddressAndForm(t *testing.T) {
	s := ownService(t) // not parallel: it needs its requests within a minute
	_, h := s.workspace()
	f, other := s.makeForm(h, allTypes), s.makeForm(h, allTypes)
	keyed := header{"X-Forwarded-For": "198.51.100.7", "Idempotency-Key": "first"}
	body := submissionOf(s.submissionToken(f), goodAnswers())
	first := s.submit(f, keyed, body)
	s.acceptedAs(first)
	if counts := s.flood(f, "198.51.100.7", 125); counts[400] != 119 || counts[429] != 6 {
		t.Fatalf("%v", counts)
	}
	if a := s.submit(f, header{
		"X-Forwarded-For": "198.51.100.7",
	}, submissionOf(s.submissionToken(f), goodAnswers())); a.Status != 429 {
		t.Errorf("%d", a.Status)
	}
	if a := s.submit(f, keyed, body); a.Body != first.Body {
		t.Errorf("a repeated key is counted: %d %s", a.Status, a.Body)
	}
	for _, free := range []map[int]int{
		s.flood(other, "198.51.100.7", 1), s.flood(f, "198.51.100.8", 1), s.flood(f, "198.51.100.7, 198.51.100.9", 1),
	} {
		if free[400] != 1 {
			t.Errorf("%v", free)
		}
	}
	if s.submissions() != 1 {
		t.Errorf("%d stored", s.submissions())
	}
}

// A caller with IPv6 has a whole /64, which counts as one address.
func TestSubmit_LimitsIPv6ByNetwork(t *testing.T) {
	s := ownService(t) // not parallel: it needs its requests within a minute
	_, f := s.form()
	if counts := s.flood(f, "2001:db8:1:2::1", 60); counts[400] != 60 {
		t.Fatalf("%v", counts)
	}
	if counts := s.flood(f, "2001:db8:1:2:ffff::2", 61); counts[400] != 60 || counts[429] != 1 {
		t.Errorf("%v", counts)
	}
	if counts := s.flood(f, "2001:db8:1:3::1", 1); counts[400] != 1 {
		t.Errorf("%v", counts)
	}
}

func TestSubmit_LimitsLocallyWithoutRedis(t *testing.T) {
	redis := testkit.NewRedis(t)
	s := ownService(t, func(c *Config) { c.RedisURL = credential.Secret(redis.URL) })
	_, f := s.form()
	s.accepted(f)
	if a := s.get("/readyz", nil); a.Status != 200 || a.Body != `{"keys":"ok","postgres":"ok","redis":"ok"}`+"\n" {
		t.Errorf("%d %q", a.Status, a.Body)
	}
	redis.Kill()
	began := time.Now()
	s.accepted(f)
	if took := time.Since(began); took >= testkit.StoreWait {
		t.Errorf("it took %s", took)
	}
	if counts := s.flood(f, "198.51.100.7", 125); counts[400] != 120 || counts[429] != 5 {
		t.Errorf("%v", counts)
	}
	if a := s.get("/readyz", nil); a.Status != 200 ||
		a.Body != `{"keys":"ok","postgres":"ok","redis":"does not answer"}`+"\n" {
		t.Errorf("%d %q", a.Status, a.Body)
	}
	if !strings.Contains(s.log.String(), "Redis unavailable") || strings.Contains(s.log.String(), redis.URL) {
		t.Error("the log does not report the failure, or contains a secret")
	}
	if err := redis.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	// Redis is not called for two seconds after a failure. The counts of this process would last for a minute.
	await.True(t, "the counts are those of Redis", func() bool {
		return s.flood(f, "198.51.100.7", 1)[400] == 1
	})
}

func TestSubmit_FrozenRedisDoesNotDelay(t *testing.T) {
	redis := testkit.NewRedis(t)
	s := ownService(t, func(c *Config) { c.RedisURL = credential.Secret(redis.URL) }, silently)
	_, f := s.form()
	s.accepted(f)
	if err := redis.Pause(); err != nil {
		t.Fatal(err)
	}
	defer redis.Resume()
	began := time.Now()
	var group sync.WaitGroup
	for i := range 20 {
		group.Go(func() {
			token := s.submissionToken(f)
			if a := s.submit(f, header{
				"X-Forwarded-For": fmt.Sprintf("198.51.100.%d", i),
			}, submissionOf(token, goodAnswers())); a.Status != 202 {
				t.Errorf("%d %s", a.Status, a.Body)
			}
		})
	}
	group.Wait()
	const inTurn = 10 * testkit.SilentStoreWait
	if took := time.Since(began); took >= 2*inTurn { // if each waited for the previous one
		t.Errorf("20 submissions took %s", took)
	}
	began = time.Now()
	s.flood(f, "198.51.100.7", 10)
	if took := time.Since(began); took >= inTurn { // if each called Redis
		t.Errorf("10 submissions one after the other took %s", took)
	}
}
