// Runs the whole flow against an MCP endpoint as an application that uses the SDK: node flow.mjs URL CLIENT_ID
// CALLBACK
// ISSUER. When a user is needed it prints {"authorize": url} and reads the callback's URL as a line. After each round
// of
// calls it prints the results and reads the next line, "expire" or "again". It prints no token.
import { createInterface } from "node:readline";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { UnauthorizedError } from "@modelcontextprotocol/sdk/client/auth.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const [address, clientId, callback, issuer] = process.argv.slice(2);
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const say = (seen) => process.stdout.write(JSON.stringify(seen) + "\n");
const heard = async () => (await lines.next()).value;

// What a browser application would keep in its storage.
const kept = { state: crypto.randomUUID() };
const provider = {
  redirectUrl: callback,
  clientMetadata: { client_name: "e2e", redirect_uris: [callback], grant_types: ["authorization_code", "refresh_token"], response_types: ["code"], token_endpoint_auth_method: "none" },
  state: () => kept.state,
  clientInformation: () => ({ client_id: clientId, issuer }),
  tokens: () => kept.tokens,
  saveTokens: (tokens) => { kept.tokens = tokens; },
  saveCodeVerifier: (verifier) => { kept.verifier = verifier; },
  codeVerifier: () => kept.verifier,
  redirectToAuthorization: (where) => { kept.asked = where.href; },
  invalidateCredentials: (what) => { if (what !== "verifier") delete kept.tokens; },
};

async function connected() {
  for (;;) {
    const client = new Client({ name: "e2e", version: "1" });
    const transport = new StreamableHTTPClientTransport(new URL(address), { authProvider: provider });
    try {
      await client.connect(transport);
      return client;
    } catch (error) {
      if (!(error instanceof UnauthorizedError)) throw error;
    }
    say({ authorize: kept.asked });
    const back = new URL(await heard()).searchParams;
    if (back.get("state") !== kept.state || back.get("iss") !== issuer) throw new Error("wrong state or iss");
    await transport.finishAuth(back.get("code"));
  }
}

async function call(client, name, args) {
  const result = await client.callTool({ name, arguments: args });
  if (result.isError) throw new Error(name + " failed");
  return result.structuredContent;
}

async function callEveryTool(client) {
  const { tools } = await client.listTools();
  const who = await call(client, "whoami", {});
  const names = [];
  for (let cursor; ; ) {
    const page = await call(client, "list_programmes", cursor ? { limit: 2, cursor } : { limit: 2 });
    for (const one of page.data) names.push((await call(client, "get_programme", { id: one.id })).name);
    cursor = page.meta.nextCursor;
    if (!cursor) break;
  }
  say({ tools: tools.map((tool) => tool.name).sort(), workspace: who.workspace.name, programmes: names, refreshed: kept.refresh !== undefined && kept.refresh !== kept.tokens.refresh_token });
  kept.refresh = kept.tokens.refresh_token;
}

const client = await connected();
await callEveryTool(client);
for (let line = await heard(); line; line = await heard()) {
  if (line === "expire") kept.tokens = { ...kept.tokens, access_token: "expired" };
  try {
    await callEveryTool(client);
  } catch (error) {
    if (!(error instanceof UnauthorizedError)) throw error;
    say({ authorize: kept.asked, kept: kept.tokens !== undefined });
    break;
  }
}
await client.close();
process.exit(0);
