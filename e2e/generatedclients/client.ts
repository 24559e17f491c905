// Calls the API with the types that openapi-typescript generates from the published description as api.d.ts, without
// changes. The first argument is the base URL, the second the id of a workspace; standard input is a personal access
// token.
import { readFileSync } from "node:fs";
import createClient from "openapi-fetch";
import type { components, paths } from "./api.js";

const [base, workspace] = process.argv.slice(2) as [string, string];
const token = readFileSync(0, "utf8").trim();
const api = createClient<paths>({ baseUrl: base, headers: { Authorization: `Bearer ${token}` } });
const header = { "X-Tenant-Id": workspace };

function fail(what: string, status: number): never {
  console.error(`${what}: ${status}`);
  process.exit(1);
}

const made = await api.POST("/v1/programmes/programmes", { params: { header }, body: { name: "Winter shelter" } });
if (!made.data) fail("create", made.response.status);
const page = await api.GET("/v1/programmes/programmes", { params: { header, query: { status: "draft" } } });
if (!page.data) fail("list", page.response.status);
const first: components["schemas"]["Programme"] | undefined = page.data.data[0];
const starts: string | null | undefined = first?.startsOn;
if (first?.id !== made.data.id || first.name !== "Winter shelter" || starts !== null || page.data.meta.count < 1) {
  fail("the list does not begin with what was created", page.response.status);
}
const refused = await api.POST("/v1/programmes/programmes", { params: { header }, body: { name: "" } });
if (refused.error?.error.code !== "VALIDATION_ERROR") fail("create without a name", refused.response.status);
