package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"
	"strings"
	"time"

	"golang.org/x/oauth2"

	"github.com/almonerhq/almoner/shared/client"
)

// A script lists the active programmes of a workspace with a personal access token.
func Example() {
	api := standIn()
	defer api.Close()

	pat := oauth2.StaticTokenSource(&oauth2.Token{AccessToken: os.Getenv("TOKEN")})
	c, err := client.New(api.URL, "0198c0de-0000-7000-8000-000000000001", pat,
		client.WithRetries(client.Retries{Most: 3}))
	if err != nil {
		log.Fatal(err)
	}
	for programme, err := range c.Programmes.List(context.Background(), client.ProgrammeFilter{Status: client.Active}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(programme.Name, programme.StartsOn)
	}
	// Output:
	// Night shelter 2026-11-01
	// Tool bank 2026-03-01
	// Seed library
}

// Two people change one programme: the second gets an error and reads it again.
func ExampleProgrammes_Update() {
	api := standIn()
	defer api.Close()
	ctx := context.Background()
	c := exampleClient(api.URL)

	programme, err := c.Programmes.Get(ctx, "night-shelter")
	if err != nil {
		log.Fatal(err)
	}
	change := client.ProgrammeChange{Summary: new("Beds from November"), EndsOn: new(client.Date(""))}
	_, err = c.Programmes.Update(ctx, programme.ID, change, client.IfMatch(programme.ETag))
	if refusal, ok := errors.AsType[*client.Error](err); ok && refusal.Code == client.CodePreconditionFailed {
		fmt.Println("changed by another user:", refusal.Message)
	}
	// Output: changed by another user: The programme has changed since you read it.
}

// A file of programmes is accepted first and processed later, as a whole or not at all.
func ExampleProgrammes_Import() {
	api := standIn()
	defer api.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c := exampleClient(api.URL)

	accepted, err := c.Programmes.Import(ctx, strings.NewReader("name,startsOn\nChoir,2026-09-01\nBoat repairs,soon\n"))
	if err != nil {
		log.Fatal(err)
	}
	done, err := c.Programmes.WaitForImport(ctx, accepted.ID)
	if err != nil {
		log.Fatal(err)
	}
	for _, wrong := range done.Errors {
		fmt.Printf("%s: row %d, %s: %s\n", done.Status, wrong.Row, wrong.Field, wrong.Message)
	}
	// Output: rejected: row 3, startsOn: Must be a date in the format YYYY-MM-DD.
}

// A connector asks a user for consent, stores each new token in place of the old one, and asks again when the
// grant has ended.
func ExampleConnector_Source() {
	api := standIn()
	defer api.Close()
	ctx := context.Background()
	connector := client.Connector{
		Application: client.Application{
			BaseURL:     api.URL,
			AppURL:      api.URL,
			ClientID:    "0198c0de-0000-7000-8000-00000000000c",
			RedirectURI: "https://app.example/callback",
		},
		Resource: api.URL + "/v1",
	}
	question := connector.Ask() // store it in the user's session and redirect the browser to question.URL
	callback := consents(question)
	token, err := connector.Finish(ctx, question, callback)
	if err != nil {
		log.Fatal(err)
	}
	source := connector.Source(ctx, token, func(_ context.Context, t *oauth2.Token) error {
		return nil // store t so that it survives a restart
	})
	c, err := client.New(api.URL, client.Workspace(token), source)
	if err != nil {
		log.Fatal(err)
	}
	_, err = c.Programmes.Get(ctx, "night-shelter") // refreshes an expired access token
	if errors.Is(err, client.ErrConsentAgain) {
		fmt.Println("the grant has ended: ask the user again")
	}
	// Output: the grant has ended: ask the user again
}

func exampleClient(baseURL string) *client.Client {
	c, err := client.New(baseURL, "0198c0de-0000-7000-8000-000000000001",
		oauth2.StaticTokenSource(&oauth2.Token{AccessToken: "x"}),
		client.WithHTTPClient(&http.Client{Timeout: 5 * time.Second}))
	if err != nil {
		log.Fatal(err)
	}
	return c
}
