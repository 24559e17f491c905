package app

import (
	"io"
	"net/http"
	"testing"

	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/contract/standing"
)

// BenchmarkList measures a page of 50 through the whole service, including network and Postgres, with 32 connections.
func BenchmarkList(b *testing.B) {
	w := ownService(b)
	workspaceID, user := w.member(perm.ProgrammesRead)
	w.Programmes(workspaceID, 230)
	w.Exec(
		"update resource.programmes set summary = 'Advice on heating, insulation and bills for people who rent in " +
			"the harbour wards.', starts_on = '2026-04-01'",
	)
	w.Exec("analyze")
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	b.Cleanup(client.CloseIdleConnections)
	grant := w.Grant(standing.Confidential, workspaceID, user, resource, perm.ProgrammesRead)
	for name, token := range map[string]string{
		"personal access token": w.PAT(workspaceID, user, perm.ProgrammesRead).Reveal(),
		"access token":          w.token(claims(grant)),
	} {
		b.Run(name, func(b *testing.B) {
			b.SetParallelism(16) // times GOMAXPROCS
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					request, _ := http.NewRequest("GET", w.server.URL+listPath, nil)
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
