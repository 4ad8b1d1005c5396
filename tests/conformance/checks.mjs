// What the scripts in JavaScript share: checks judged one by one, and what became of each.
export async function runAll(client, checks) {
  for (const [name, check] of Object.entries(checks)) {
    try {
      await check();
      console.log(`ok   ${client} ${name}`);
    } catch (error) {
      console.log(`FAIL ${client} ${name}: ${error}`);
    }
  }
}
