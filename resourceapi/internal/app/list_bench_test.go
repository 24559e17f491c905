package app

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/contract/standing"

	"github.com/almonerhq/almoner/resourceapi/internal/store/postgres/postgrestest"
)

// BenchmarkList measures a page of 50 through the whole service, including network and Postgres, with 32 connections.
func BenchmarkList(b *testing.B) {
	w := postgrestest.New(b)
	workspaceID, user := w.Workspace(), w.User()
	w.Member(workspaceID, user, perm.ProgrammesRead)
	w.Programmes(workspaceID, 230)
	w.Exec(
		"update resource.programmes set summary = 'Advice on heating, insulation and bills for people who rent in " +
			"the harbour wards.', starts_on = '2026-04-01'",
	)
	w.Exec("analyze")
	key := newKey(b, "key-1")
	service := newApp(b, w.Database.Resourceapi, newAuthserver(b, key).URL, slog.New(slog.DiscardHandler))
	server := httptest.NewServer(service.Handler)
	b.Cleanup(server.Close)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	b.Cleanup(client.CloseIdleConnections)
	for name, token := range map[string]string{
		"personal access token": w.PAT(workspaceID, user, perm.ProgrammesRead).Reveal(),
		"access token": key.sign(
			b,
			claims(w.Grant(standing.Confidential, workspaceID, user, resource, perm.ProgrammesRead)),
		),
	} {
		b.Run(name, func(b *testing.B) {
			b.SetParallelism(16) // times GOMAXPROCS
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					request, _ := http.NewRequest("GET", server.URL+listPath, nil)
					request.Header = http.Header{
						"Authorization": {"Bearer " + token},
						"X-Tenant-Id":   {workspaceID.String()},
					}
					response, err := client.Do(request)
					if err != nil {
						b.Error(err)
						return
					}
					_, _ = io.Copy(io.Discard, response.Body)
					_ = response.Body.Close()
					if response.StatusCode != 200 {
						b.Errorf("status %d", response.StatusCode)
					}
				}
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "req/s")
		})
	}
}
