package stack

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
)

const (
	askWithin  = 5 * time.Second // longer than a service waits for its stores one after the other
	watchEvery = 5 * time.Second
)

// readiness is what a service says of itself (/readyz).
type readiness struct {
	ready   bool
	trouble string // what does not work, also where requests are answered all the same; "": everything works
}

// ask reads the readiness of the service at an address.
func ask(ctx context.Context, address string) readiness {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address+"/readyz", nil)
	if err != nil {
		return readiness{trouble: "it has no address"}
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return readiness{trouble: "it does not answer: " + withoutURL(err).Error()}
	}
	defer func() { _ = response.Body.Close() }()
	body, _ := io.ReadAll(io.LimitReader(response.Body, 1<<12)) // without it there is the status
	return readiness{response.StatusCode == http.StatusOK, troubleIn(response.StatusCode, body)}
}

// troubleIn reads the parts that do not answer ({"redis":"does not answer"}), or the message of an error.
func troubleIn(status int, body []byte) string {
	var parts map[string]string
	if json.Unmarshal(body, &parts) == nil {
		var found []string
		for _, name := range slices.Sorted(maps.Keys(parts)) {
			if parts[name] != "ok" {
				found = append(found, name+" "+parts[name])
			}
		}
		if len(found) > 0 || status == http.StatusOK {
			return strings.Join(found, ", ")
		}
	}
	var refusal struct{ Error struct{ Message string } }
	if json.Unmarshal(body, &refusal) == nil && refusal.Error.Message != "" {
		return refusal.Error.Message
	}
	if status == http.StatusOK {
		return ""
	}
	return fmt.Sprint("it answers with status ", status)
}

// Watch tells Options.Say what the services say of themselves whenever that changes, until ctx ends.
func (s *Stack) Watch(ctx context.Context) {
	told := map[*Service]string{}
	for {
		s.look(ctx, told)
		select {
		case <-ctx.Done():
			return
		case <-time.After(watchEvery):
		}
	}
}

// look asks each service once. told is what was said of each before.
func (s *Stack) look(ctx context.Context, told map[*Service]string) {
	for _, service := range s.services() {
		trouble := ask(ctx, service.URL).trouble
		if ctx.Err() != nil {
			return
		}
		if trouble != told[service] {
			told[service] = trouble
			s.options.say(s.report(service, trouble))
		}
	}
}

// report says what is wrong with a service, and where to look.
func (s *Stack) report(service *Service, trouble string) string {
	if trouble == "" {
		return service.Name + " works again"
	}
	var named []string
	for _, store := range []struct{ name, setting, value string }{
		{"postgres", "ALMONER_DATABASE_URL", s.options.DatabaseURL}, {"redis", "ALMONER_REDIS_URL", s.options.RedisURL},
	} {
		if strings.Contains(trouble, store.name) && store.value != "" {
			named = append(named, store.setting+" names the "+store.name+" that it needs")
		}
	}
	named = append(named, "its log is "+service.spec.Log)
	return service.Name + " does not work as it should: " + trouble + " (" + strings.Join(named, "; ") + ")"
}
