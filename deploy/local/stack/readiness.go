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
	askWithin  = 5 * time.Second // longer than a service waits for all its stores in turn
	watchEvery = 5 * time.Second
)

// readiness is the state that a service reports (/readyz).
type readiness struct {
	ready   bool
	trouble string // what does not work, even if the service is ready; "" if everything works
}

// ask returns the readiness of the service at an address.
func ask(ctx context.Context, address string) readiness {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address+"/readyz", nil)
	if err != nil {
		return readiness{trouble: "it has no address"}
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return readiness{trouble: "it does not respond: " + withoutURL(err).Error()}
	}
	defer func() { _ = response.Body.Close() }()
	body, _ := io.ReadAll(io.LimitReader(response.Body, 1<<12)) // without the body, the status is used
	return readiness{response.StatusCode == http.StatusOK, troubleIn(response.StatusCode, body)}
}

// troubleIn returns the parts that do not work ({"redis":"does not answer"}), or the message of an error.
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
	return fmt.Sprint("it returns status ", status)
}

// Watch reports every change of the services' readiness to Options.Progress, until ctx ends.
func (s *Stack) Watch(ctx context.Context) {
	reported := map[*Service]string{}
	for {
		s.look(ctx, reported)
		select {
		case <-ctx.Done():
			return
		case <-time.After(watchEvery):
		}
	}
}

// look checks each service once. reported holds the last report for each.
func (s *Stack) look(ctx context.Context, reported map[*Service]string) {
	for _, service := range s.services() {
		trouble := ask(ctx, service.URL).trouble
		if ctx.Err() != nil {
			return
		}
		if trouble != reported[service] {
			reported[service] = trouble
			s.options.say(s.report(service, trouble))
		}
	}
}

// report describes what is wrong with a service and where to look.
func (s *Stack) report(service *Service, trouble string) string {
	if trouble == "" {
		return service.Name + " works again"
	}
	var named []string
	for _, store := range []struct{ name, setting, value string }{
		{"postgres", "ALMONER_DATABASE_URL", s.options.DatabaseURL}, {"redis", "ALMONER_REDIS_URL", s.options.RedisURL},
	} {
		if strings.Contains(trouble, store.name) && store.value != "" {
			named = append(named, "check "+store.setting)
		}
	}
	named = append(named, "its log is "+service.spec.Log)
	return service.Name + " has a problem: " + trouble + " (" + strings.Join(named, "; ") + ")"
}
