// Package generatedclients calls the API with the clients that oapi-codegen and ogen generate from the published
// description. TestGeneratedClients_GoCompilesAndCalls generates them as the packages oapi and ogen, without changes to
// the description or to their code, and runs these tests. The first argument is the base URL, the second the id of a
// workspace; standard input is a personal access token.
package generatedclients

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/google/uuid"

	"generatedclients/oapi"
	"generatedclients/ogen"
)

const (
	programme = "Winter shelter"
	invalid   = "VALIDATION_ERROR"
)

func TestClients(t *testing.T) {
	token, err := io.ReadAll(os.Stdin)
	if err != nil {
		t.Fatal(err)
	}
	workspace := uuid.MustParse(flag.Arg(1))
	for name, call := range map[string]func(base, token string, workspace uuid.UUID) error{
		"oapi-codegen": callOapi, "ogen": callOgen,
	} {
		if err := call(flag.Arg(0), strings.TrimSpace(string(token)), workspace); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func callOapi(base, token string, workspace uuid.UUID) error {
	ctx := context.Background()
	authorize := func(_ context.Context, r *http.Request) error {
		r.Header.Set("Authorization", "Bearer "+token)
		return nil
	}
	api, err := oapi.NewClientWithResponses(base, oapi.WithRequestEditorFn(authorize))
	if err != nil {
		return err
	}
	parameters := oapi.CreateProgrammeParams{XTenantId: workspace}
	made, err := api.CreateProgrammeWithResponse(ctx, &parameters, oapi.NewProgramme{Name: programme})
	if err != nil || made.JSON201 == nil {
		return fmt.Errorf("create: %v %v", err, made)
	}
	status := oapi.Draft
	page, err := api.ListProgrammesWithResponse(ctx, &oapi.ListProgrammesParams{XTenantId: workspace, Status: &status})
	if err != nil || page.JSON200 == nil {
		return fmt.Errorf("list: %v %v", err, page)
	}
	first := page.JSON200.Data[0]
	if first.Id != made.JSON201.Id || first.Name != programme || first.StartsOn != nil || page.JSON200.Meta.Count < 1 {
		return fmt.Errorf("the list begins with %+v", first)
	}
	refused, err := api.CreateProgrammeWithResponse(ctx, &parameters, oapi.NewProgramme{})
	if err != nil || refused.JSON400 == nil || string(refused.JSON400.Error.Code) != invalid {
		return fmt.Errorf("create without a name: %v %v", err, refused)
	}
	return nil
}

// tokens is the source of credentials of ogen's client.
type tokens struct {
	ogen.SecuritySource
	token string
}

func (t tokens) Bearer(context.Context, ogen.OperationName) (ogen.Bearer, error) {
	return ogen.Bearer{Token: t.token}, nil
}

func callOgen(base, token string, workspace uuid.UUID) error {
	ctx := context.Background()
	api, err := ogen.NewClient(base, tokens{token: token})
	if err != nil {
		return err
	}
	parameters := ogen.CreateProgrammeParams{XTenantID: ogen.ID(workspace)}
	answer, err := api.CreateProgramme(ctx, &ogen.CreateProgrammeApplicationJSON{Name: programme}, parameters)
	made, ok := answer.(*ogen.ProgrammeHeaders)
	if !ok {
		return fmt.Errorf("create: %v %T", err, answer)
	}
	listed, err := api.ListProgrammes(ctx, ogen.ListProgrammesParams{
		XTenantID: ogen.ID(workspace),
		Status:    ogen.NewOptProgrammeStatus(ogen.ProgrammeStatusDraft),
	})
	page, ok := listed.(*ogen.ProgrammePage)
	if !ok {
		return fmt.Errorf("list: %v %T", err, listed)
	}
	first := page.Data[0]
	if first.ID != made.Response.ID || first.Name != programme || !first.StartsOn.Null || page.Meta.Count < 1 {
		return fmt.Errorf("the list begins with %+v", first)
	}
	blank := &ogen.CreateProgrammeApplicationJSON{Name: "\u200b"} // the schema allows it, but it is invisible
	answer, err = api.CreateProgramme(ctx, blank, parameters)
	refused, ok := answer.(*ogen.CreateProgrammeBadRequest)
	if !ok || string(refused.Error.Code) != invalid {
		return fmt.Errorf("create without a name: %v %T", err, answer)
	}
	return nil
}
