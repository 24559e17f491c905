// Command list prints the active programmes of a workspace. It reads the address of the API, a personal access token
// and the workspace's identifier from the environment: API, TOKEN and WORKSPACE.
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"golang.org/x/oauth2"

	"github.com/almonerhq/almoner/shared/client"
)

func main() {
	ctx := context.Background()
	pat := oauth2.StaticTokenSource(&oauth2.Token{AccessToken: os.Getenv("TOKEN")})
	api, err := client.New(os.Getenv("API"), os.Getenv("WORKSPACE"), pat, client.WithRetries(client.Retries{Most: 3}))
	if err != nil {
		log.Fatal(err)
	}
	for programme, err := range api.Programmes.List(ctx, client.ProgrammeFilter{Status: client.Active}) {
		if err != nil {
			log.Fatal(err) // errors.As: *client.Error, with Code, Fields, RequestID and Temporary
		}
		fmt.Println(programme.Name)
	}
}
